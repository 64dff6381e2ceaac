package watch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/watch"
)

// fakeDatabase answers each reading with the next state, and begins it before it waits for that.
type fakeDatabase struct {
	began  chan struct{}
	states chan store.WatchState
	failed error
}

func (*fakeDatabase) BeginWatch(_ context.Context, locks []store.Name, _ time.Duration, begun func(store.Name, string)) error {
	for _, lock := range locks {
		begun(lock, "key of "+string(lock))
	}
	return nil
}

func (f *fakeDatabase) WatchStates(context.Context, []store.Name) ([]store.WatchState, error) {
	if f.failed != nil {
		return nil, f.failed
	}
	f.began <- struct{}{}
	return []store.WatchState{<-f.states}, nil
}

// onFake runs a Broadcast on a fakeDatabase, with the time of synctest.
func onFake(t *testing.T, test func(t *testing.T, f *fakeDatabase, b *watch.Broadcast)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDatabase{began: make(chan struct{}, 1), states: make(chan store.WatchState)}
		b := watch.New(f, time.Hour)
		go b.Run(t.Context(), func(error) {})
		test(t, f, b)
	})
}

func subscribe(t *testing.T, b *watch.Broadcast) *reader {
	t.Helper()
	s, err := b.Subscribe(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	return &reader{Subscription: s}
}

// A subscription does not get the state of a reading that began before it: its reader may know a newer one already.
func TestSubscriptionWaitsForItsOwnReading(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		first := subscribe(t, b)
		<-f.began
		late := subscribe(t, b)
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock"}, Version: 10}
		<-f.began
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock"}, Version: 30}
		synctest.Wait()
		first.next(t)
		late.next(t)
		if first.last != 10 || late.last != 30 {
			t.Errorf("the versions are %d and %d, want 10, and 30 of the next reading", first.last, late.last)
		}
	})
}

// Versions rise where the clock of the database was set back.
func TestVersionsRiseWhenTheClockFalls(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		w := subscribe(t, b)
		for i, version := range []int64{100, 50, 50, 101} {
			f.states <- store.WatchState{Lock: store.Lock{Lock: "lock", Token: int64(i)}, Version: version}
			<-f.began
			if got := w.next(t).Token; got != int64(i) {
				t.Errorf("state %d has the token %d", i, got)
			}
			b.Fetch("key of lock")
		}
		<-f.began
		f.states <- store.WatchState{Lock: store.Lock{Lock: "lock", Token: 4}, Version: 102}
		w.next(t)
		if w.last != 104 {
			t.Errorf("the last version is %d, want 104, four above 100", w.last)
		}
	})
}

// Subscriptions end when locks could not be read for a minute, so that clients try another gateway.
func TestSubscriptionsEndWithoutADatabase(t *testing.T) {
	t.Parallel()
	onFake(t, func(t *testing.T, f *fakeDatabase, b *watch.Broadcast) {
		f.failed = store.NotApplied(errors.New("unreachable"))
		w := subscribe(t, b)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if state, err := w.Next(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("it returned %+v (%v), want ErrUnavailable", state, err)
		}
		if after := time.Since(began).Round(time.Second); after != time.Minute {
			t.Errorf("the subscription ended after %s, want a minute", after)
		}
	})
}
