package api

// The names of server-sent events. A watch begins with EventState. EventEnd is the last event if the gateway ends the
// stream.
const (
	EventState    = "state"
	EventGranted  = "granted"
	EventRenewed  = "renewed"
	EventReleased = "released"
	EventExpired  = "expired"
	EventBroken   = "broken"
	EventQueued   = "queued"
	EventRejected = "rejected"
	EventLeader   = "leader"

	EventRejection = "rejection"
	EventMissed    = "missed"

	EventEnd = "end"
)

// WatchState is the data of the event "state": the state of the lock at the event's id. A watch begins with it, unless
// it could resume after the Last-Event-ID without a gap.
type WatchState struct {
	Lock
	// Missed says that events after the Last-Event-ID of the request are lost.
	Missed bool `json:"missed"`
}

// Event is the data of the other events of a watch. Fields that its kind does not have are absent.
type Event struct {
	Lock string `json:"lock"`
	At   Time   `json:"at"`
	// OwnerID is the owner of the lease, the waiter or the write; of a write only if it is known.
	OwnerID      string `json:"owner_id,omitempty"`
	FencingToken int64  `json:"fencing_token,omitempty"`
	Mode         string `json:"mode,omitempty"`
	Scope        string `json:"scope,omitempty"`
	ExpiresAt    *Time  `json:"expires_at,omitempty"`
	// Reason is that of a break or a rejection.
	Reason string `json:"reason,omitempty"`
	// Code and Key are of a rejected write.
	Code Code   `json:"code,omitempty"`
	Key  string `json:"key,omitempty"`
}

// RejectionsMissed is the data of the event "missed" of a stream of rejections: some that changed after Since have no
// event. Lists have them.
type RejectionsMissed struct {
	Since Time `json:"since"`
}

// WatchEnd is the data of the event "end".
type WatchEnd struct {
	// Reason is slow_reader, shutdown or unavailable. In each case, connect again with Last-Event-ID.
	Reason string `json:"reason"`
}
