package await

import (
	"time"

	"go.uber.org/goleak"
)

// NoGoroutine waits until goleak finds no goroutine besides those that the options ignore. It returns what is left
// after Limit. goleak.Find alone waits less than half a second: a pool of connections may take longer to end.
func NoGoroutine(ignored ...goleak.Option) error {
	for deadline := time.Now().Add(Limit); ; time.Sleep(longPause) {
		if err := goleak.Find(ignored...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
