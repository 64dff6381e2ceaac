package lockclient

import "time"

var processBegan = time.Now()

// moment is a point in time by both clocks of this machine. Neither is enough: the monotonic clock may stand still while the system is
// suspended, the wall clock is set by people and by NTP.
type moment struct {
	monotonic time.Duration
	wall      time.Duration
}

func now() moment {
	t := time.Now()
	return moment{monotonic: t.Sub(processBegan), wall: time.Duration(t.UnixNano())}
}

// since is how long ago earlier was, by the clock that says longer. A wall clock that is set forward by more than what is left of a lease
// ends the trust in it too early, which is safe; set back, it is overruled by the other.
func (m moment) since(earlier moment) time.Duration {
	return max(m.monotonic-earlier.monotonic, m.wall-earlier.wall)
}
