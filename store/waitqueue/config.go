package waitqueue

import "time"

// Config says how a Queue keeps its waiters alive and how often it looks for their turn.
type Config struct {
	// HeartbeatInterval is the time between two heartbeats, while a caller waits here.
	HeartbeatInterval time.Duration
	// DeadAfter is the time without a heartbeat after which other gateways skip the waiters of this process.
	DeadAfter time.Duration
	// PollInterval is the time between two looks for waiters whose notification was lost.
	PollInterval time.Duration
}
