package lockclient

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// TestEndIsSeenByAll checks that nobody who looks at a context at the moment of its end sees only half of that: the
// channel of Done is closed for everybody to whom the clocks say that the lease is over, also for a lease of a session.
func TestEndIsSeenByAll(t *testing.T) {
	t.Parallel()
	var b background
	b.start()
	defer b.cancel(nil)
	lost := func(why error) error { return &LostError{What: "it", Why: why} }
	begin := func(within *validity) *validity {
		v, err := newValidity(context.Background(), &b, within, lost)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const ttl = 100 * time.Microsecond
	for range 2000 {
		session, own := begin(nil), begin(nil)
		ofSession := begin(session)
		for _, v := range []*validity{session, own} {
			v.set(readClock(), ttl, nil)
		}
		over := time.Now().Add(ttl)
		var looking sync.WaitGroup
		for _, v := range []*validity{own, own, ofSession, ofSession} {
			looking.Go(func() {
				for time.Now().Before(over) {
				}
				select {
				case <-v.context().Done():
				default:
					t.Error("the channel of Done is open after the end")
				}
				if err := context.Cause(v.context()); !errors.Is(err, ErrLeaseLost) {
					t.Errorf("the cause is %v", err)
				}
			})
		}
		looking.Wait()
	}
}
