package store

import "time"

// EventKind is what happened to a lock.
type EventKind string

// The kinds of events.
const (
	EventGranted  EventKind = "granted"
	EventRenewed  EventKind = "renewed"
	EventReleased EventKind = "released"
	EventExpired  EventKind = "expired"
	EventBroken   EventKind = "broken"
	EventQueued   EventKind = "queued"
	EventRejected EventKind = "rejected" // a write
)

// Event is something that happened to a lock. Events of one lock are in the order of their IDs. What does not belong to its kind is zero.
type Event struct {
	ID      int64
	Kind    EventKind
	Lock    Name
	At      time.Time // by the database's clock
	OwnerID string
	Token   int64
	Mode    Mode
	Scope   Scope
	// ExpiresAt is of granted and renewed; of a lease in a session it is zero.
	ExpiresAt time.Time
	Reason    string  // of a break, or of a rejection
	Verdict   Verdict // of a rejection
	Key       Name    // of a rejection
}
