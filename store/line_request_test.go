package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencegate/fencegate/store"
)

// The same request is sent twice at once, to one Service and to two: there is one place, and one lease, and both are told of it.
func TestSameRequestTwice(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, store.ServiceConfig{Poll: 20 * time.Millisecond})
	for round := range 30 {
		lock := store.Name(fmt.Sprint("lock ", round))
		request := store.AcquireRequest{Lock: lock, OwnerID: "twice", RequestID: "r", Wait: store.WaitMax}
		held := round%3 > 0
		var holder store.Lease
		if held {
			holder = s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		}
		first := goAcquire(patient(t), s.at(1), request)
		second := goAcquire(patient(t), s.at(1+round%2), request)
		if held {
			s.awaitQueued(t, 1)
			s.release(t, 0, holder)
		}
		one, other := granted(t, first), granted(t, second)
		if one.ID != other.ID || one.Token != other.Token {
			t.Errorf("one request was granted %+v and %+v", one, other)
		}
		if n := s.count(t, "select count(*) from fence.leases where lock = $1 and request_id = 'r'", lock); n != 1 {
			t.Errorf("one request has %d leases", n)
		}
		s.release(t, 0, one)
	}
	s.expectQuiet(t)
}

// Of two callers with one request one goes away, on the same Service and on another one: the other keeps the place, and what it turns into is
// his.
func TestOneOfTwoGoesAway(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, store.ServiceConfig{Poll: 20 * time.Millisecond})
	for round := range 20 {
		lock := store.Name(fmt.Sprint("lock ", round))
		request := store.AcquireRequest{Lock: lock, OwnerID: "twice", RequestID: "r", Wait: store.WaitMax}
		holder := s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		ctx, goAway := context.WithCancel(patient(t))
		first := s.queueFor(ctx, t, 1, request)
		// It is seen by its gateway, or by its longer time, that the place has been taken over.
		const since = "select (extract(epoch from deadline_at) * 1000000)::bigint from fence.waiters where lock = $1"
		was := s.count(t, since, lock)
		second := goAcquire(patient(t), s.at(1+round%2), request)
		await(t, "the other has the place, too", func() bool { return s.count(t, since, lock) > was })
		next := s.queue(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "next"})
		if round%4 < 2 {
			s.release(t, 0, holder)
			goAway()
		} else {
			goAway()
			s.release(t, 0, holder)
		}
		got := granted(t, second)
		if left := answered(t, first); left.err == nil && left.lease.ID != got.ID {
			t.Errorf("one request was granted %+v and %+v", left.lease, got)
		}
		if _, err := s.at(2).Renew(patient(t), got.Ref(), 0); err != nil {
			t.Errorf("the lease of the one who stayed: %v", err)
		}
		s.release(t, 0, got)
		s.release(t, 0, granted(t, next))
	}
	s.expectQuiet(t)
}

// All callers of one place go away at the same moment: nothing of it stays in the line.
func TestAllOfOnePlaceGoAway(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 2, noPoll)
	for round := range 20 {
		lock := store.Name(fmt.Sprint("lock ", round))
		holder := s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
		ctx, goAway := context.WithCancel(patient(t))
		var callers []<-chan outcome
		for range 4 {
			callers = append(callers, goAcquire(ctx, s.at(0), store.AcquireRequest{Lock: lock, OwnerID: "many", RequestID: "r", Wait: store.WaitMax}))
		}
		await(t, "all wait", func() bool { return s.at(0).Waiting() == 4 })
		s.awaitQueued(t, 1)
		next := s.queue(t, 1, store.AcquireRequest{Lock: lock, OwnerID: "next"})
		goAway()
		for _, answers := range callers {
			if got := answered(t, answers); !errors.Is(got.err, context.Canceled) {
				t.Errorf("who went away was told %+v", got)
			}
		}
		s.release(t, 0, holder)
		s.release(t, 1, granted(t, next))
	}
	s.expectQuiet(t)
}

// The connection is cut at the worst moments of those who wait: when a place is taken, when it is claimed and granted, and when it is left.
// Whatever was answered or not, there is one lease and no place that nobody wants.
func TestConnectionOfWaitersIsCut(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	s := newServices(t, b, 1, store.ServiceConfig{Poll: 20 * time.Millisecond})
	cutter := newCutter(t, b)
	cut := runService(t, cutter.through(t), store.ServiceConfig{Poll: 20 * time.Millisecond, Beat: 20 * time.Millisecond, Missing: time.Minute})
	for name, c := range map[string]struct {
		at   string
		when moment
	}{
		"the place is taken":        {"requester", beforeClient},
		"the place is not taken":    {"requester", beforeServer},
		"it is granted":             {"fence.grant_next", beforeClient},
		"it is not granted":         {"fence.grant_next", beforeServer},
		"nothing is heard of dues":  {"fence.next_due", beforeServer},
		"nothing is heard of beats": {"fence.heartbeat", beforeServer},
	} {
		t.Run(name, func(t *testing.T) {
			lock := store.Name(name)
			holder := s.acquire(t, 0, store.AcquireRequest{Lock: lock, OwnerID: "holder"})
			request := store.AcquireRequest{Lock: lock, OwnerID: "requester", Wait: store.WaitMax}
			cutter.cut(c.when, c.at)
			answers := goAcquire(patient(t), cut, request)
			time.AfterFunc(300*time.Millisecond, func() { cutter.cut(never, "") })
			s.release(t, 0, holder)
			got := answered(t, answers)
			for ctx := patient(t); errors.Is(got.err, store.ErrUnavailable) && ctx.Err() == nil; { // nothing has happened: until the cuts are over
				got = outcome{}
				got.lease, got.err = cut.Acquire(ctx, request)
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if _, err := s.at(0).Renew(patient(t), got.lease.Ref(), 0); err != nil {
				t.Errorf("the lease: %v", err)
			}
			if n := s.count(t, "select count(*) from fence.leases where lock = $1 and owner_id = 'requester'", lock); n != 1 {
				t.Errorf("it has %d leases", n)
			}
			s.release(t, 0, got.lease)
		})
	}
	t.Run("the place can't be left", func(t *testing.T) {
		holder := s.acquire(t, 0, store.AcquireRequest{Lock: "left", OwnerID: "holder"})
		for _, when := range []moment{beforeServer, beforeClient} {
			ctx, goAway := context.WithCancel(patient(t))
			answers := goAcquire(ctx, cut, store.AcquireRequest{Lock: "left", OwnerID: "gone", Wait: store.WaitMax})
			s.awaitQueued(t, 1)
			cutter.cut(when, "fence.leave")
			goAway()
			if got := answered(t, answers); !errors.Is(got.err, context.Canceled) {
				t.Errorf("who went away was told %+v", got)
			}
			cutter.cut(never, "")
			s.awaitQueued(t, 0)
		}
		s.release(t, 0, holder)
	})
	s.expectQuiet(t)
}
