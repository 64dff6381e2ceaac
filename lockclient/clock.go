package lockclient

import "time"

var processStart = time.Now()

// dualClock is a point in time by both clocks of this machine. Neither is enough: the monotonic clock may stop while
// the system is suspended, and people and NTP set the wall clock.
type dualClock struct {
	monotonic time.Duration
	wall      time.Duration
}

func readClock() dualClock {
	t := time.Now()
	return dualClock{monotonic: t.Sub(processStart), wall: time.Duration(t.UnixNano())}
}

// since returns the time since earlier, by the clock that says more. A wall clock that is set forward by more than what
// is left of a lease ends its validity too early, which is safe. If it is set back, the monotonic clock counts.
func (m dualClock) since(earlier dualClock) time.Duration {
	return max(m.monotonic-earlier.monotonic, m.wall-earlier.wall)
}
