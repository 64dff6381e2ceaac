package watch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/watch"
)

func (s *engines) watch(t *testing.T, index int, lock store.Name, after *int64) *watch.Subscription {
	t.Helper()
	w, err := s.At(index).Watch(await.Context(t), lock, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// eventIDs are those of a lock after an ID, as they are kept, once all are published.
func (s *engines) eventIDs(t *testing.T, lock store.Name, after int64) []int64 {
	t.Helper()
	await.True(t, "the events are published", func() bool {
		return s.Count(t, "select count(*) from fence.unpublished where lock = $1", lock) == 0
	})
	rows, err := s.SQL.Query(await.Context(t), "select id from fence.events where lock = $1 and id > $2 order by id", lock, after)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// watcher reads a watch in the background.
type watcher struct {
	*watch.Subscription
	from int64 // the watch began after this event

	mu   sync.Mutex
	seen []store.Event
	err  error
	done chan struct{}
}

func readWatch(ctx context.Context, w *watch.Subscription) *watcher {
	r := &watcher{Subscription: w, from: w.ID, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for {
			event, err := w.Next(ctx)
			r.mu.Lock()
			if r.err = err; err == nil {
				r.seen = append(r.seen, event)
			}
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return r
}

func (r *watcher) ids() (ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.seen {
		ids = append(ids, event.ID)
	}
	return ids
}

func (r *watcher) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// expectAll returns when the watcher has seen all events that are kept, each once and in their order.
func (s *engines) expectAll(t *testing.T, what string, r *watcher, lock store.Name) {
	t.Helper()
	want := s.awaitAll(t, r, lock)
	if got := r.ids(); !slices.Equal(got, want) {
		missing := slices.DeleteFunc(slices.Clone(want), func(id int64) bool { return slices.Contains(got, id) })
		t.Errorf("%s saw %d of %d events, %t sorted, began after %d, and misses %v (%v)", what, len(got), len(want),
			slices.IsSorted(got), r.from, missing, r.failure())
	}
}

// awaitAll returns the events that are kept, when the watcher has seen as many or has failed.
func (s *engines) awaitAll(t *testing.T, r *watcher, lock store.Name) (want []int64) {
	t.Helper()
	want = s.eventIDs(t, lock, r.from)
	deadline := time.Now().Add(await.Limit / 2)
	for len(r.ids()) < len(want) && r.failure() == nil && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
	return want
}

// untilNotLocked repeats a call that was not applied since others had the fence of its lock for too long.
func untilNotLocked(call func() error) error {
	for {
		if err := call(); !errors.Is(err, store.ErrLocked) {
			return err
		}
	}
}

// stir makes all kinds of events of a lock at the same time: grants, renewals, releases, waiters and rejections.
func (s *engines) stir(ctx context.Context, t *testing.T, lock store.Name) *sync.WaitGroup {
	t.Helper()
	var stirring sync.WaitGroup
	for i := range 4 {
		stirring.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				var lease store.Lease
				err := untilNotLocked(func() (err error) {
					lease, err = s.At(i).Acquire(context.Background(), store.AcquireRequest{
						Lock: lock, OwnerID: fmt.Sprint("owner ", i), Mode: store.Shared, Wait: time.Minute,
					})
					return err
				})
				for range 5 {
					if err == nil {
						err = untilNotLocked(func() error {
							_, err := s.At(i+1).Renew(context.Background(), lease.Ref(), 0)
							return err
						})
					}
				}
				if err == nil {
					err = untilNotLocked(func() error { return s.At(i+2).Release(context.Background(), lease.Ref()) })
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stirring.Go(func() {
		const sql = `select fence.record_rejections(array[$1], array['k'], array['token_stale'], array['superseded'], array['http'], array[''],
			array[$2::bigint], array[null::bigint], array[0::bigint], array[0::bigint], array[0::bigint], array[1::bigint],
			array[clock_timestamp()], array[clock_timestamp()])`
		for n := 1; ctx.Err() == nil; n++ {
			if _, err := s.SQL.Exec(context.Background(), sql, lock, n); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return &stirring
}

// Each subscription returns every event exactly once and in order, on every engine, also if it begins in the middle of
// events, or while the listening connections are cut.
func TestWatchesSeeAllEvents(t *testing.T) {
	t.Parallel()
	for _, cuts := range []int{0, 3} {
		t.Run(fmt.Sprint(cuts, " cuts"), func(t *testing.T) {
			t.Parallel()
			s := newEngines(t, enginetest.New(t), 3, engine.Config{PollInterval: time.Hour})
			s.WatchEvents(t, "lock")
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			stirring := s.stir(ctx, t, "lock")
			reading, end := context.WithCancel(context.Background())
			defer end()
			var mu sync.Mutex
			var watchers []*watcher
			for round := range 4 {
				var beginning sync.WaitGroup
				for i := range 6 {
					beginning.Go(func() {
						w, err := s.At(i/3+round).Watch(reading, "lock", nil)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						watchers = append(watchers, readWatch(reading, w))
					})
				}
				beginning.Wait()
				time.Sleep(50 * time.Millisecond)
				if round < cuts {
					s.BreakListeners(t)
				}
			}
			stop()
			stirring.Wait()
			for i, w := range watchers {
				s.awaitAll(t, w, "lock")
				if cuts > 0 && errors.Is(w.failure(), store.ErrSlowReader) {
					continue // a batch after a cut may be too much at once
				}
				s.expectAll(t, fmt.Sprint("watch ", i), w, "lock")
			}
			end()
			for _, w := range watchers {
				<-w.done
				w.Close()
			}
		})
	}
}

// Subscriptions to one lock that begin at the same instant all return the same events, over and over again.
func TestWatchesBeginTogether(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 1, engine.Config{PollInterval: time.Hour})
	s.WatchEvents(t, "lock")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stirring := s.stir(ctx, t, "lock")
	for range 30 {
		reading, end := context.WithCancel(context.Background())
		watchers := make([]*watcher, 4)
		var beginning sync.WaitGroup
		for i := range watchers {
			beginning.Go(func() {
				w, err := s.At(0).Watch(reading, "lock", nil)
				if err != nil {
					t.Error(err)
					return
				}
				watchers[i] = readWatch(reading, w)
			})
		}
		beginning.Wait()
		if t.Failed() {
			end()
			break
		}
		last := int64(math.MaxInt64) // that all have seen
		for _, w := range watchers {
			await.True(t, "some events are seen", func() bool { return len(w.ids()) >= 10 })
			last = min(last, slices.Max(w.ids()))
		}
		for i, w := range watchers {
			want := slices.DeleteFunc(s.eventIDs(t, "lock", w.from), func(id int64) bool { return id > last })
			got := slices.DeleteFunc(w.ids(), func(id int64) bool { return id > last })
			if !slices.Equal(got, want) {
				t.Errorf("watch %d began after %d, and saw %v of %v", i, w.from, got, want)
			}
		}
		end()
		for _, w := range watchers {
			<-w.done
			w.Close()
		}
	}
	stop()
	stirring.Wait()
}
