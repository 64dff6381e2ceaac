package api

// The names of server-sent events. EventEnd is the last event if the gateway ends the stream.
const (
	EventState = "state"

	EventRejection = "rejection"
	EventMissed    = "missed"

	EventEnd = "end"
)

// WatchState is the data of the event "state" of a watch: the lock as GET shows it, without its Queue. ExpiresAt of a
// holder is as of this moment: a renewal is no change.
type WatchState struct {
	Lock
	// Version is greater than that of every state that this client received of the lock before, also after a reconnect.
	Version int64 `json:"version"`
}

// RejectionsMissed is the data of the event "missed" of a stream of rejections: some that changed after Since have no
// event. Lists have them.
type RejectionsMissed struct {
	Since Time `json:"since"`
}

// WatchEnd is the data of the event "end".
type WatchEnd struct {
	// Reason is slow_reader, shutdown or unavailable. In each case, connect again.
	Reason string `json:"reason"`
}
