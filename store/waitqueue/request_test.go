package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
	"github.com/fencegate/fencegate/store/postgres"
)

// Of two callers with one request one leaves, on the same engine or on another one. The other keeps the ticket, and
// gets the lease.
func TestOneOfTwoCallersLeaves(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, engine.Config{PollInterval: 20 * time.Millisecond})
	for round := range 20 {
		lock := store.Name(fmt.Sprint("lock ", round))
		request := store.AcquireRequest{Lock: lock, OwnerID: "twice", RequestID: "r", Wait: store.WaitMax}
		holder := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		ctx, cancel := context.WithCancel(await.Context(t))
		first := s.QueueFor(ctx, t, 1, request)
		// It is seen by its gateway, or by its longer time, that the ticket has been taken over.
		const since = "select (extract(epoch from deadline_at) * 1000000)::bigint from fence.waiters where lock = $1"
		was := s.Count(t, since, lock)
		second := enginetest.GoAcquire(await.Context(t), s.At(1+round%2), request)
		await.True(t, "the other has the ticket, too", func() bool { return s.Count(t, since, lock) > was })
		next := s.Queue(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "next"})
		if round%4 < 2 {
			s.Release(t, 0, holder)
			cancel()
		} else {
			cancel()
			s.Release(t, 0, holder)
		}
		got := enginetest.Granted(t, second)
		if left := enginetest.Answered(t, first); left.Err == nil && left.Lease.ID != got.ID {
			t.Errorf("one request was granted %+v and %+v", left.Lease, got)
		}
		if _, err := s.At(2).Renew(await.Context(t), got.Ref(), 0); err != nil {
			t.Errorf("the lease of the caller that stayed: %v", err)
		}
		s.Release(t, 0, got)
		s.Release(t, 0, enginetest.Granted(t, next))
	}
	s.ExpectQuiet(t)
}

// A lock is released after its waiter was queued, and before the gateway knows the ticket. The notification counts: the
// waiter is granted the lock, without a poll.
func TestReleaseBeforeTheTicketIsKnown(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 1, enginetest.NoPoll)
	cutter := enginetest.NewCutter(t, b)
	late := enginetest.Run(t, cutter.Through(t), enginetest.NoPoll)
	first := s.Acquire(t, 0, store.AcquireRequest{Lock: "first", OwnerID: "holder", TTL: time.Hour})
	second := s.Acquire(t, 0, store.AcquireRequest{Lock: "second", OwnerID: "holder", TTL: time.Hour})
	other := enginetest.GoAcquire(await.Context(t), late,
		store.AcquireRequest{Lock: "second", OwnerID: "other", Wait: store.WaitMax})
	s.AwaitQueued(t, 1)
	answered, resume := cutter.Hold("fence.acquire_lease", "requester")
	t.Cleanup(resume)
	answers := enginetest.GoAcquire(await.Context(t), late,
		store.AcquireRequest{Lock: "first", OwnerID: "requester", Wait: store.WaitMax})
	await.Receive(t, "the acquire is answered, and the answer held back", answered)
	s.AwaitQueued(t, 2)
	s.Release(t, 0, first)
	s.Release(t, 0, second)
	s.Release(t, 0, enginetest.Granted(t, other)) // the notification of first came before that of second
	resume()
	s.Release(t, 0, enginetest.Granted(t, answers))
	s.ExpectQuiet(t)
}

// cuts are the moments at which the connection of a waiter is cut.
var cuts = map[string]struct {
	at   string // a part of the statement, or of its arguments
	when enginetest.Moment
}{
	"the ticket is taken":     {"requester", enginetest.BeforeClient},
	"the ticket is not taken": {"requester", enginetest.BeforeServer},
	"it is granted":           {"fence.grant_next", enginetest.BeforeClient},
	"it is not granted":       {"fence.grant_next", enginetest.BeforeServer},
	"no answer about dues":    {"fence.next_due", enginetest.BeforeServer},
	"no answer about beats":   {"fence.heartbeat", enginetest.BeforeServer},
}

// The connection is cut at the worst moments of waiters: when a ticket is taken, when it is granted, and when the
// waiter leaves. Whether answered or not, there is one lease and no orphan.
func TestConnectionOfWaitersIsCut(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 1, enginetest.NoPoll)
	cutter := enginetest.NewCutter(t, b)
	beating := enginetest.NoPoll
	beating.HeartbeatInterval = 20 * time.Millisecond
	cut := enginetest.Run(t, cutter.Through(t), beating)
	polling := beating
	polling.PollInterval = 20 * time.Millisecond
	for name, c := range cuts {
		t.Run(name, func(t *testing.T) {
			lock := store.Name(name)
			cut := cut
			if c.at == "fence.next_due" {
				cut = enginetest.Run(t, cutter.Through(t), polling)
			}
			holder := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
			request := store.AcquireRequest{Lock: lock, OwnerID: "requester", Wait: store.WaitMax}
			var answers <-chan enginetest.Outcome
			if c.at != "requester" {
				answers = enginetest.GoAcquire(await.Context(t), cut, request)
				s.AwaitQueued(t, 1)
			}
			done := cutter.CutOnce(c.when, c.at)
			if c.at == "requester" {
				answers = enginetest.GoAcquire(await.Context(t), cut, request)
			}
			if c.at != "fence.grant_next" {
				await.ReceiveWithin(t, enginetest.AnswerLimit, "the connection is cut", done)
			}
			s.Release(t, 0, holder)
			got := enginetest.Answered(t, answers)
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			await.ReceiveWithin(t, enginetest.AnswerLimit, "the connection is cut", done)
			if _, err := s.At(0).Renew(await.Context(t), got.Lease.Ref(), 0); err != nil {
				t.Errorf("the lease: %v", err)
			}
			if n := s.Count(t, "select count(*) from fence.leases where lock = $1 and owner_id = 'requester'", lock); n != 1 {
				t.Errorf("it has %d leases", n)
			}
			s.Release(t, 0, got.Lease)
		})
	}
	t.Run("the ticket can't be left", func(t *testing.T) {
		holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "holder"})
		for _, when := range []enginetest.Moment{enginetest.BeforeServer, enginetest.BeforeClient} {
			ctx, cancel := context.WithCancel(await.Context(t))
			answers := enginetest.GoAcquire(ctx, cut, store.AcquireRequest{Lock: "left", OwnerID: "gone", Wait: store.WaitMax})
			s.AwaitQueued(t, 1)
			cutter.Cut(when, "fence.leave")
			cancel()
			if got := enginetest.Answered(t, answers); !errors.Is(got.Err, context.Canceled) {
				t.Errorf("a waiter that left got %+v", got)
			}
			cutter.Cut(enginetest.Never, "")
			s.AwaitQueued(t, 0)
		}
		s.Release(t, 0, holder)
	})
	s.ExpectQuiet(t)
}

// durable is something that was answered, and what is to be seen of it.
type durable struct {
	name string
	do   func(t *testing.T, s *engines, lock store.Name)
	seen string // a query of the lock that yields 1
}

var durables = []durable{
	{"a grant", func(t *testing.T, s *engines, lock store.Name) {
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
	}, "select count(*) from fence.leases where lock = $1 and ended_at is null"},
	{"a grant after waiting", func(t *testing.T, s *engines, lock store.Name) {
		first := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "first", TTL: time.Hour})
		waiting := s.Queue(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		s.Release(t, 0, first)
		enginetest.Granted(t, waiting)
	}, "select count(*) from fence.leases where lock = $1 and owner_id = 'owner' and ended_at is null"},
	{"a release", func(t *testing.T, s *engines, lock store.Name) {
		s.Release(t, 1, s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"}))
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
	{"a break", func(t *testing.T, s *engines, lock store.Name) {
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner"})
		if _, err := s.At(1).Break(await.Context(t), lock, "for the test"); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'broken'"},
	{"the end of a session", func(t *testing.T, s *engines, lock store.Name) {
		session := s.OpenSession(t, 0, "owner", 0)
		s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "owner", SessionID: session.ID})
		if _, err := s.At(1).EndSession(await.Context(t), session.ID); err != nil {
			t.Error(err)
		}
	}, "select count(*) from fence.leases where lock = $1 and end_reason = 'released'"},
}

// What was answered survives a crash right after the answer, though only its own commit brings it to the disk. A
// renewal, a heartbeat and a ticket may be lost: they do not wait for the disk.
func TestAnswersSurviveACrash(t *testing.T) {
	t.Parallel()
	b, cluster := enginetest.NewCrashing(t, pgtest.Setting("wal_writer_delay", "10s"), pgtest.Setting("autovacuum", "off"))
	s := newEngines(t, b, 2, engine.Config{PollInterval: 50 * time.Millisecond, HeartbeatInterval: time.Minute,
		DeadAfter: 10 * time.Minute})
	s.expectOnDisk(t)
	for i, d := range durables {
		lock := store.Name(fmt.Sprint("lock ", i))
		d.do(t, s, lock)
		cluster.Kill()
		cluster.Restart()
		b.SQL.Reset()
		if n := b.Count(t, d.seen, lock); n != 1 {
			t.Errorf("%s was answered, and is lost", d.name)
		}
		if err := enginetest.Insist(func() error {
			_, err := s.At(0).Policies(await.Context(t))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := enginetest.Insist(func() error {
			_, err := s.At(1).Policies(await.Context(t))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// expectOnDisk looks at how far the log is on the disk right after an answer.
func (s *engines) expectOnDisk(t *testing.T) {
	t.Helper()
	lease := s.Acquire(t, 0, store.AcquireRequest{Lock: "disk", OwnerID: "owner"})
	session := s.OpenSession(t, 0, "owner", 0)
	sweeper := enginetest.NewSweeper(t, s.At(0).Store, postgres.SweeperConfig{})
	for what, do := range map[string]func() error{
		"a sweep":     func() error { _, err := sweeper.Sweep(await.Context(t)); return err },
		"a renewal":   func() error { _, err := s.At(0).Renew(await.Context(t), lease.Ref(), 0); return err },
		"a heartbeat": func() error { _, err := s.At(0).KeepAlive(await.Context(t), session.ID); return err },
		"a ticket": func() error {
			ctx, cancel := context.WithCancel(await.Context(t))
			answers := s.QueueFor(ctx, t, 1, store.AcquireRequest{Lock: "disk", OwnerID: "next"})
			cancel()
			<-answers
			return nil
		},
	} {
		behind := 0
		for range 5 {
			if err := do(); err != nil {
				t.Fatal(err)
			}
			behind += s.Count(t, "select (pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn())::integer")
		}
		if behind == 0 {
			t.Errorf("%s waits for the disk", what)
		}
	}
	s.Release(t, 0, lease)
}
