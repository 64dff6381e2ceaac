package waitqueue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// wakeCase is something that ends the wait of a waiter on another engine. There is no polling: only the notification
// can wake it.
type wakeCase struct {
	name  string
	held  store.AcquireRequest // by "holder", on the first engine
	waits store.AcquireRequest // by "next", on the second
	clear func(t *testing.T, s *engines, held store.Lease)
}

var wakeCases = []wakeCase{
	{"release by SQL", store.AcquireRequest{}, store.AcquireRequest{}, func(t *testing.T, s *engines, held store.Lease) {
		s.Exec(t, "select fence.release($1, $2, $3, $4)", held.Lock, held.OwnerID, held.ID, held.Token)
	}},
	{"a late release", store.AcquireRequest{}, store.AcquireRequest{}, func(t *testing.T, s *engines, held store.Lease) {
		s.Exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1", held.Lock)
		s.Release(t, 0, held)
	}},
	{"expiry", store.AcquireRequest{TTL: 6 * time.Second}, store.AcquireRequest{}, nothing},
	{"expiry after a renewal", store.AcquireRequest{TTL: 6 * time.Second}, store.AcquireRequest{}, renewFor(0)},
	{"expiry after a shorter renewal", store.AcquireRequest{TTL: time.Hour},
		store.AcquireRequest{}, renewFor(100 * time.Millisecond)},
	{"expiry of the subtree above", store.AcquireRequest{Lock: "a", Scope: store.Subtree, TTL: 6 * time.Second},
		store.AcquireRequest{Lock: "a/b/c"}, nothing},
	{"expiry below the subtree", store.AcquireRequest{Lock: "a/b", TTL: 6 * time.Second},
		store.AcquireRequest{Lock: "a", Scope: store.Subtree}, nothing},
}

func nothing(*testing.T, *engines, store.Lease) {}

func renewFor(ttl time.Duration) func(*testing.T, *engines, store.Lease) {
	return func(t *testing.T, s *engines, held store.Lease) {
		if _, err := s.At(2).Renew(await.Context(t), held.Ref(), ttl); err != nil {
			t.Error(err)
		}
	}
}

// Ways in which a lease ends that TestRandomQueues does not have wake the next waiter, too. All cases run at the same
// time, each with a lock of its own: some leases expire only after some seconds.
func TestEndOfALeaseWakesTheNextWaiter(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 3, enginetest.NoPoll)
	var leases []store.Lease
	var waits []<-chan enginetest.Outcome
	for _, c := range wakeCases {
		prefix := store.Name(uuid.NewString() + "/")
		held, next := c.held, c.waits
		held.Lock, next.Lock = prefix+orLock(held.Lock), prefix+orLock(next.Lock)
		held.OwnerID, next.OwnerID = "holder", "next"
		leases = append(leases, s.Acquire(t, 0, held))
		waits = append(waits, s.Queue(t, 1, next))
		enginetest.Unanswered(t, waits[len(waits)-1])
	}
	for i, c := range wakeCases {
		c.clear(t, s, leases[i])
	}
	for i, c := range wakeCases {
		t.Run(c.name, func(t *testing.T) { s.Release(t, 1, enginetest.Granted(t, waits[i])) })
	}
	s.ExpectQuiet(t)
}

func orLock(name store.Name) store.Name {
	if name == "" {
		return "lock"
	}
	return name
}

// leaving is how the waiters before one leave the queue.
type leaving struct {
	name  string
	first store.AcquireRequest // leaves
	last  store.AcquireRequest // was behind the first alone
	held  store.AcquireRequest // what is in the way of the first alone
}

var leavings = []leaving{
	{"a writer before readers", store.AcquireRequest{Lock: "lock"}, store.AcquireRequest{Lock: "lock", Mode: store.Shared},
		store.AcquireRequest{Lock: "lock", Mode: store.Shared}},
	{"a subtree before a name below", store.AcquireRequest{Lock: "a", Scope: store.Subtree},
		store.AcquireRequest{Lock: "a/b"},
		store.AcquireRequest{Lock: "a/c"}},
	{"a name below before the subtree", store.AcquireRequest{Lock: "a/b"},
		store.AcquireRequest{Lock: "a", Scope: store.Subtree, Mode: store.Shared},
		store.AcquireRequest{Lock: "a/b", Mode: store.Shared}},
}

// When a waiter's time is over, it wakes the waiters that only it was blocking; and when several leave at the same
// moment, the last one does.
func TestLeavingWakesTheNextWaiter(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
	for _, c := range leavings {
		t.Run(c.name+", many at once", func(t *testing.T) {
			for range 6 {
				s.testLeaving(t, c, 6, givesUp)
			}
		})
	}
	t.Run("time is over", func(t *testing.T) {
		for _, c := range leavings {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s.testLeaving(t, c, 1, timeIsOver)
			})
		}
	})
	s.ExpectQuiet(t)
}

type leavingHow int

const (
	givesUp leavingHow = iota
	timeIsOver
)

func (s *engines) testLeaving(t *testing.T, c leaving, count int, how leavingHow) {
	t.Helper()
	prefix := store.Name(uuid.NewString() + "/")
	held, first, last := c.held, c.first, c.last
	held.Lock, first.Lock, last.Lock = prefix+held.Lock, prefix+first.Lock, prefix+last.Lock
	held.OwnerID, first.OwnerID, last.OwnerID = "holder", "first", "last"
	lease := s.Acquire(t, 0, held)
	ctx, cancel := context.WithCancel(await.Context(t))
	defer cancel()
	if how == timeIsOver {
		first.Wait = 4 * time.Second
	}
	var leaving []<-chan enginetest.Outcome
	for i := range count {
		leaving = append(leaving, s.QueueFor(ctx, t, i%2, first))
	}
	answers := s.Queue(t, 2, last)
	want := store.ErrLeaseHeld
	if how == givesUp {
		together := s.holdTickets(t, first.Lock)
		cancel()
		together(count)
		want = context.Canceled
	}
	s.Release(t, 2, enginetest.Granted(t, answers))
	for _, left := range leaving {
		if got := enginetest.Answered(t, left); !errors.Is(got.Err, want) {
			t.Errorf("a waiter that left got %+v, not %v", got, want)
		}
	}
	s.Release(t, 0, lease)
}

// holdTickets keeps the tickets of a queue from being removed until so many statements wait to do it. Then they all do
// it together.
func (s *engines) holdTickets(t *testing.T, lock store.Name) (together func(statements int)) {
	t.Helper()
	_, unlock := s.LockedBy(t, "select from fence.waiters where lock = $1 for update", lock)
	return func(statements int) {
		t.Helper()
		statements = min(statements, 2) // one turn at a time of each of the two engines that they wait in
		await.True(t, "as many as can leave at the same time do", func() bool {
			return s.Count(t, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = "+
				"'Lock'") == statements
		})
		unlock()
	}
}
