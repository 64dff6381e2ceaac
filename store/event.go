package store

import "time"

// EventsChannel is where fence.publish_event notifies of events; the payload is the WatchState.Key of the lock.
const EventsChannel = "fence_events"

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

// Event is something that happened to a lock. Events of one lock are in the order of their IDs. Fields of other kinds
// are zero.
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

// WatchState is a lock and its position among its events.
type WatchState struct {
	Since  int64  // the events after this ID are kept
	Newest int64  // the ID of the newest event
	Key    string // stands for the lock on EventsChannel
	Lock   Lock   // after that event; one that was never granted is free, with token 0
}
