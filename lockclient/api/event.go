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
	// Greater than that of every state of the lock that you received before, also after a reconnect.
	Version int64 `json:"version" schema:"minimum=1"`
}

// RejectionsMissed is the data of the event "missed" of a stream of rejections: some that changed after Since have no
// event. Lists have them.
type RejectionsMissed struct {
	// Changes after it may not have been sent.
	Since Time `json:"since"`
}

// WatchEnd is the data of the event "end".
type WatchEnd struct {
	// `slow_reader`: the events were not read in time. `shutdown`: the gateway shuts down. `unavailable`: the database
	// is unreachable. `unauthenticated`: the credential has ended. Connect again.
	Reason string `json:"reason" schema:"enum=slow_reader|shutdown|unavailable|unauthenticated"`
}
