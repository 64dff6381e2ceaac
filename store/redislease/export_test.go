package redislease

import "time"

// LeftOf is left.
func LeftOf(times []time.Duration) (time.Duration, bool) { return left(times) }
