package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// wakeCase is something that clears the way for one who waits on another Service. Nobody polls: only what it does can wake him.
type wakeCase struct {
	name  string
	held  store.AcquireRequest // by "holder", on the first Service
	waits store.AcquireRequest // by "next", on the second
	clear func(t *testing.T, s *services, held store.Lease)
}

var wakeCases = []wakeCase{
	{"release", store.AcquireRequest{}, store.AcquireRequest{}, releaseFirst},
	{"break", store.AcquireRequest{}, store.AcquireRequest{}, func(t *testing.T, s *services, held store.Lease) {
		if _, err := s.at(2).Break(patient(t), held.Lock, "for the test"); err != nil {
			t.Error(err)
		}
	}},
	{"expiry", store.AcquireRequest{TTL: 200 * time.Millisecond}, store.AcquireRequest{}, nothing},
	{"expiry after a renewal", store.AcquireRequest{TTL: 300 * time.Millisecond}, store.AcquireRequest{}, func(t *testing.T, s *services, held store.Lease) {
		if _, err := s.at(2).Renew(patient(t), held.Ref(), 0); err != nil {
			t.Error(err)
		}
	}},
	{"expiry after a shorter renewal", store.AcquireRequest{TTL: time.Hour}, store.AcquireRequest{}, func(t *testing.T, s *services, held store.Lease) {
		if _, err := s.at(2).Renew(patient(t), held.Ref(), 100*time.Millisecond); err != nil {
			t.Error(err)
		}
	}},
	{"a late release", store.AcquireRequest{}, store.AcquireRequest{}, func(t *testing.T, s *services, held store.Lease) {
		s.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1", held.Lock)
		releaseFirst(t, s, held)
	}},
	{"a sweep", store.AcquireRequest{}, store.AcquireRequest{}, func(t *testing.T, s *services, held store.Lease) {
		s.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1", held.Lock)
		if _, err := newSweeper(t, s.at(2).Store, store.SweeperConfig{}).Sweep(patient(t)); err != nil {
			t.Error(err)
		}
	}},
	{"release, for a reader", store.AcquireRequest{}, store.AcquireRequest{Mode: store.Shared}, releaseFirst},
	{"release by a reader", store.AcquireRequest{Mode: store.Shared}, store.AcquireRequest{}, releaseFirst},
	{"release of the subtree above", store.AcquireRequest{Lock: "a", Scope: store.Subtree}, store.AcquireRequest{Lock: "a/b/c"}, releaseFirst},
	{"expiry of the subtree above", store.AcquireRequest{Lock: "a", Scope: store.Subtree, TTL: 200 * time.Millisecond}, store.AcquireRequest{Lock: "a/b/c"}, nothing},
	{"break of the subtree above", store.AcquireRequest{Lock: "a", Scope: store.Subtree}, store.AcquireRequest{Lock: "a/b/c"},
		func(t *testing.T, s *services, held store.Lease) {
			if _, err := s.at(2).Break(patient(t), held.Lock, "for the test"); err != nil {
				t.Error(err)
			}
		}},
	{"release below the subtree", store.AcquireRequest{Lock: "a/b/c"}, store.AcquireRequest{Lock: "a", Scope: store.Subtree}, releaseFirst},
	{"expiry below the subtree", store.AcquireRequest{Lock: "a/b", TTL: 200 * time.Millisecond}, store.AcquireRequest{Lock: "a", Scope: store.Subtree}, nothing},
}

func nothing(*testing.T, *services, store.Lease) {}

func releaseFirst(t *testing.T, s *services, held store.Lease) { s.release(t, 0, held) }

// Whatever ends a lease wakes the one who waits for it, on whichever Service, and not by polling.
func TestWhatEndsALeaseWakesTheNext(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := newServices(t, b, 3, noPoll)
	for _, c := range wakeCases {
		t.Run(c.name, func(t *testing.T) {
			prefix := store.Name(uuid.NewString() + "/")
			held, waits := c.held, c.waits
			held.Lock, waits.Lock = prefix+orLock(held.Lock), prefix+orLock(waits.Lock)
			held.OwnerID, waits.OwnerID = "holder", "next"
			lease := s.acquire(t, 0, held)
			answers := s.queue(t, 1, waits)
			unanswered(t, answers)
			c.clear(t, s, lease)
			s.release(t, 1, granted(t, answers))
		})
	}
	s.expectQuiet(t)
}

func orLock(name store.Name) store.Name {
	if name == "" {
		return "lock"
	}
	return name
}

// Those who wait come in turn, each on another Service, though only the first of them is near the lease.
func TestTheWholeLineIsWoken(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	lease := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "first"})
	var line []<-chan outcome
	for i := range 9 {
		line = append(line, s.queue(t, i, store.AcquireRequest{Lock: "lock", OwnerID: "next", TTL: 100 * time.Millisecond}))
	}
	s.release(t, 0, lease)
	for i, answers := range line {
		next := granted(t, answers)
		if next.Token <= lease.Token {
			t.Errorf("token %d was granted after %d", next.Token, lease.Token)
		}
		lease = next
		switch i % 3 { // otherwise it is left to expire
		case 0:
			s.release(t, i, lease)
		case 1:
			if _, err := s.at(i).Break(patient(t), "lock", "for the test"); err != nil {
				t.Error(err)
			}
		}
	}
	await(t, "the last lease ends", func() bool {
		return s.count(t, "select count(*) from fence.leases where ended_at is null and expires_at > clock_timestamp()") == 0
	})
	s.expectQuiet(t)
}

// leaving is how those before one leave the line.
type leaving struct {
	name  string
	first store.AcquireRequest // who leaves
	last  store.AcquireRequest // who was behind him alone
	held  store.AcquireRequest // what is in the way of the first alone
}

var leavings = []leaving{
	{"a writer before readers", store.AcquireRequest{Lock: "lock"}, store.AcquireRequest{Lock: "lock", Mode: store.Shared},
		store.AcquireRequest{Lock: "lock", Mode: store.Shared}},
	{"a subtree before a name below", store.AcquireRequest{Lock: "a", Scope: store.Subtree}, store.AcquireRequest{Lock: "a/b"},
		store.AcquireRequest{Lock: "a/c"}},
	{"a name below before the subtree", store.AcquireRequest{Lock: "a/b"}, store.AcquireRequest{Lock: "a", Scope: store.Subtree, Mode: store.Shared},
		store.AcquireRequest{Lock: "a/b", Mode: store.Shared}},
}

// Who leaves a line wakes those whom he alone held up: one who gives up, one whose time is over, one whose session ends; and of several
// who leave at the same moment, the last.
func TestWhoLeavesWakesTheNext(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for _, c := range leavings {
		t.Run(c.name+", gives up", func(t *testing.T) { s.testLeaving(t, c, 1, givesUp) })
		t.Run(c.name+", time is over", func(t *testing.T) { s.testLeaving(t, c, 1, timeIsOver) })
		t.Run(c.name+", session ends", func(t *testing.T) { s.testLeaving(t, c, 1, sessionEnds) })
		t.Run(c.name+", many at once", func(t *testing.T) {
			for range 6 {
				s.testLeaving(t, c, 6, givesUp)
			}
		})
	}
	s.expectQuiet(t)
}

type leavingHow int

const (
	givesUp leavingHow = iota
	timeIsOver
	sessionEnds
)

func (s *services) testLeaving(t *testing.T, c leaving, count int, how leavingHow) {
	t.Helper()
	prefix := store.Name(uuid.NewString() + "/")
	held, first, last := c.held, c.first, c.last
	held.Lock, first.Lock, last.Lock = prefix+held.Lock, prefix+first.Lock, prefix+last.Lock
	held.OwnerID, first.OwnerID, last.OwnerID = "holder", "first", "last"
	lease := s.acquire(t, 0, held)
	ctx, giveUp := context.WithCancel(patient(t))
	defer giveUp()
	var session store.Session
	switch how {
	case timeIsOver:
		first.Wait = 500 * time.Millisecond
	case sessionEnds:
		var err error
		if session, err = s.at(0).CreateSession(ctx, store.SessionRequest{OwnerID: "first"}); err != nil {
			t.Fatal(err)
		}
		first.SessionID = session.ID
	}
	var leaving []<-chan outcome
	for i := range count {
		leaving = append(leaving, s.queueFor(ctx, t, i%2, first))
	}
	answers := s.queue(t, 2, last)
	want := store.ErrLeaseHeld
	switch how {
	case givesUp:
		together := s.holdPlaces(t, first.Lock)
		giveUp()
		together(count)
		want = context.Canceled
	case sessionEnds:
		if _, err := s.at(2).EndSession(patient(t), session.ID); err != nil {
			t.Error(err)
		}
		want = store.ErrLeaseLost
	}
	s.release(t, 2, granted(t, answers))
	for _, left := range leaving {
		if got := answered(t, left); !errors.Is(got.err, want) {
			t.Errorf("who left was told %+v, not %v", got, want)
		}
	}
	s.release(t, 0, lease)
}

// holdPlaces keeps the places of a line from being left, until so many statements wait to do it: then they do it at the same moment.
func (s *services) holdPlaces(t *testing.T, lock store.Name) (together func(statements int)) {
	t.Helper()
	tx, err := s.sql.Begin(patient(t))
	if err == nil {
		_, err = tx.Exec(patient(t), "select from fence.waiters where lock = $1 for update", lock)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func(statements int) {
		t.Helper()
		statements = min(statements, 4) // two at a time of each of the two services that they wait in
		await(t, "as many as can leave at the same time do", func() bool {
			return s.count(t, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == statements
		})
		if err := tx.Rollback(patient(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// What happens while the connection for notifications is cut, is found when it stands again, without polling.
func TestReconnectingFindsWhatWasMissed(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 2, noPoll)
	for range 3 {
		holder := s.acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder"})
		next := s.queue(t, 1, store.AcquireRequest{Lock: "lock", OwnerID: "next"})
		watch := s.watch(t, 1, "lock", nil)
		s.breakListeners(t)
		await(t, "the connection is cut", func() bool { return !s.at(1).Listening() })
		s.release(t, 0, holder)
		s.release(t, 0, granted(t, next))
		s.next(t, watch, 3)
		await(t, "the other listens again, too", s.at(0).Listening)
	}
	s.expectQuiet(t)
}
