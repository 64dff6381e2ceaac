package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/enginetest"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/engine"
)

// The same request is sent twice at once, to one engine and to two. It has one ticket and one lease, and both callers
// get that.
func TestSameRequestTwice(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, engine.Config{PollInterval: 20 * time.Millisecond})
	for round := range 30 {
		lock := store.Name(fmt.Sprint("lock ", round))
		request := store.AcquireRequest{Lock: lock, OwnerID: "twice", RequestID: "r", Wait: store.WaitMax}
		held := round%3 > 0
		var holder store.Lease
		if held {
			holder = s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		}
		first := enginetest.GoAcquire(await.Context(t), s.At(1), request)
		second := enginetest.GoAcquire(await.Context(t), s.At(1+round%2), request)
		if held {
			s.AwaitQueued(t, 1)
			s.Release(t, 0, holder)
		}
		one, other := enginetest.Granted(t, first), enginetest.Granted(t, second)
		if one.ID != other.ID || one.Token != other.Token {
			t.Errorf("one request was granted %+v and %+v", one, other)
		}
		if n := s.Count(t, "select count(*) from fence.leases where lock = $1 and request_id = 'r'", lock); n != 1 {
			t.Errorf("one request has %d leases", n)
		}
		s.Release(t, 0, one)
	}
	s.ExpectQuiet(t)
}

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

// All callers of one ticket leave at the same moment: nothing of it stays in the queue.
func TestAllCallersOfOneTicketLeave(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	for round := range 20 {
		lock := store.Name(fmt.Sprint("lock ", round))
		holder := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		ctx, cancel := context.WithCancel(await.Context(t))
		var callers []<-chan enginetest.Outcome
		for range 4 {
			callers = append(callers, enginetest.GoAcquire(ctx, s.At(0),
				store.AcquireRequest{Lock: lock, OwnerID: "many", RequestID: "r", Wait: store.WaitMax}))
		}
		await.True(t, "all wait", func() bool { return s.At(0).Waiting() == 4 })
		s.AwaitQueued(t, 1)
		next := s.Queue(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "next"})
		cancel()
		for _, answers := range callers {
			if got := enginetest.Answered(t, answers); !errors.Is(got.Err, context.Canceled) {
				t.Errorf("a waiter that left got %+v", got)
			}
		}
		s.Release(t, 0, holder)
		s.Release(t, 1, enginetest.Granted(t, next))
	}
	s.ExpectQuiet(t)
}

// The connection is cut at the worst moments of waiters: when a ticket is taken, when it is granted, and when the
// waiter leaves. Whether answered or not, there is one lease and no orphan.
func TestConnectionOfWaitersIsCut(t *testing.T) {
	t.Parallel()
	b := enginetest.New(t)
	s := newEngines(t, b, 1, engine.Config{PollInterval: 20 * time.Millisecond})
	cutter := enginetest.NewCutter(t, b)
	cut := enginetest.Run(t, cutter.Through(t), engine.Config{PollInterval: 20 * time.Millisecond,
		HeartbeatInterval: 20 * time.Millisecond, DeadAfter: time.Minute})
	for name, c := range map[string]struct {
		at   string
		when enginetest.Moment
	}{
		"the ticket is taken":     {"requester", enginetest.BeforeClient},
		"the ticket is not taken": {"requester", enginetest.BeforeServer},
		"it is granted":           {"fence.grant_next", enginetest.BeforeClient},
		"it is not granted":       {"fence.grant_next", enginetest.BeforeServer},
		"no answer about dues":    {"fence.next_due", enginetest.BeforeServer},
		"no answer about beats":   {"fence.heartbeat", enginetest.BeforeServer},
	} {
		t.Run(name, func(t *testing.T) {
			lock := store.Name(name)
			holder := s.Acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
			request := store.AcquireRequest{Lock: lock, OwnerID: "requester", Wait: store.WaitMax}
			cutter.Cut(c.when, c.at)
			answers := enginetest.GoAcquire(await.Context(t), cut, request)
			over := time.AfterFunc(300*time.Millisecond, func() { cutter.Cut(enginetest.Never, "") })
			defer over.Stop()
			s.Release(t, 0, holder)
			got := enginetest.Answered(t, answers)
			// nothing has happened: until the cuts are over
			for ctx := await.Context(t); errors.Is(got.Err, store.ErrUnavailable) && ctx.Err() == nil; {
				got = enginetest.Outcome{}
				got.Lease, got.Err = cut.Acquire(ctx, request)
			}
			if got.Err != nil {
				t.Fatal(got.Err)
			}
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
