package api

// The names of server-sent events. The first of a watch is EventState; the last, where the gateway ends the stream, is EventEnd.
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

// WatchState is the data of the event "state": how the lock stands at the event's id. A watch begins with it, unless
// Last-Event-ID could be resumed from without a gap.
type WatchState struct {
	Lock
	// Missed says that events after the Last-Event-ID that was sent are lost.
	Missed bool `json:"missed"`
}

// Event is the data of the other events of a watch. What does not belong to its kind is absent.
type Event struct {
	Lock string `json:"lock"`
	At   Time   `json:"at"`
	// OwnerID is whose lease, whose place in the line, or whose write it is; of a write, as far as that is known.
	OwnerID      string `json:"owner_id,omitempty"`
	FencingToken int64  `json:"fencing_token,omitempty"`
	Mode         string `json:"mode,omitempty"`
	Scope        string `json:"scope,omitempty"`
	ExpiresAt    *Time  `json:"expires_at,omitempty"`
	// Reason is that of a break or of a rejection; of EventExpired it is max_hold where the lease reached its HoldUntil.
	Reason string `json:"reason,omitempty"`
	// Code and Key are of a rejected write.
	Code Code   `json:"code,omitempty"`
	Key  string `json:"key,omitempty"`
}

// RejectionsMissed is the data of the event "missed" among rejections: some that changed after Since are not told. A list that is
// fetched from now on has them.
type RejectionsMissed struct {
	Since Time `json:"since"`
}

// WatchEnd is the data of the event "end".
type WatchEnd struct {
	// Reason is slow_reader, shutdown or unavailable. In each case: connect again, with Last-Event-ID.
	Reason string `json:"reason"`
}
