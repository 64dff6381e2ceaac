package waitqueue

import "time"

// Config says how the waiters of a Queue are kept alive and looked after.
type Config struct {
	// Beat is how often the database is told that this process lives, while somebody waits in it.
	Beat time.Duration
	// Missing is how long the waiters of a process that is not heard of still count; after that they hold nobody up.
	Missing time.Duration
	// Poll is how often the lines are looked at without any notification, for those that were lost.
	Poll time.Duration
}
