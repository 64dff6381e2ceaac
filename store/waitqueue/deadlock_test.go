package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/enginetest"
	"github.com/fencegate/fencegate/store"
)

// A wait that would close a cycle is refused with the cycle, in whichever way the owners are in each other's way. No
// other wait is refused.
func TestDeadlockIsRefused(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
	for _, h := range enginetest.Holds {
		for _, size := range []int{2, 3, 10} {
			t.Run(fmt.Sprintf("%s, %d", h.Name, size), func(t *testing.T) {
				r := enginetest.BuildRing(t, s.Engines, h, size)
				last := r.Wanted(size - 1)
				last.Wait = store.WaitMax
				_, err := s.At(size).Acquire(await.Context(t), last)
				var deadlock *store.DeadlockError
				if !errors.As(err, &deadlock) || !errors.Is(err, store.ErrDeadlock) {
					t.Fatalf("the last got %v", err)
				}
				var want []store.Wait
				for index := range size {
					waits := r.Wanted((size - 1 + index) % size)
					want = append(want, store.Wait{OwnerID: waits.OwnerID, Lock: waits.Lock})
				}
				if !slices.Equal(deadlock.Cycle, want) {
					t.Errorf("the cycle is %v, not %v", deadlock.Cycle, want)
				}
				last.Wait = 0
				if _, err := s.At(size).Acquire(await.Context(t), last); !errors.Is(err, store.ErrLeaseHeld) {
					t.Errorf("a try, which does not wait, got %v", err)
				}
				r.Unwind(t)
			})
		}
	}
	s.ExpectQuiet(t)
}

// Of two waits that close a cycle at the same instant exactly one is refused, and the other served when the owner of
// the refused one releases what it has.
func TestDeadlockAtTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 2, enginetest.NoPoll)
	for round := range 60 {
		locks := [2]store.Name{store.Name(fmt.Sprint("left ", round)), store.Name(fmt.Sprint("right ", round))}
		var leases [2]store.Lease
		var waits [2]<-chan enginetest.Outcome
		for i := range 2 {
			leases[i] = s.Acquire(t, i, store.AcquireRequest{Lock: locks[i], OwnerID: fmt.Sprint("owner ", i)})
		}
		for i := range 2 {
			waits[i] = enginetest.GoAcquire(await.Context(t), s.At(i+round),
				store.AcquireRequest{Lock: locks[1-i], OwnerID: fmt.Sprint("owner ", i), Wait: store.WaitMax})
		}
		s.expectOneRefused(t, waits, leases)
	}
	s.ExpectQuiet(t)
}

// Two owners without a lease wait for the same two locks, each with two requests at the same instant. Either both have
// the same order in both queues, or one of the requests is refused.
func TestDeadlockOfTicketsAtTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
	for round := range 40 {
		locks := [2]store.Name{store.Name(fmt.Sprint("left ", round)), store.Name(fmt.Sprint("right ", round))}
		held := []store.Lease{
			s.Acquire(t, 0, store.AcquireRequest{Lock: locks[0], OwnerID: "outsider"}),
			s.Acquire(t, 0, store.AcquireRequest{Lock: locks[1], OwnerID: "outsider"}),
		}
		var requests sync.WaitGroup
		var refused, served sync.Map
		release := make(chan struct{})
		for i := range 4 {
			ctx, cancel := context.WithCancel(await.Context(t))
			requests.Go(func() {
				defer cancel()
				lease, err := s.At(i/2+i%2).Acquire(ctx, store.AcquireRequest{Lock: locks[i%2],
					OwnerID: fmt.Sprint("owner ", i/2), Wait: store.WaitMax})
				switch {
				case errors.Is(err, store.ErrDeadlock):
					refused.Store(i, true)
				case err != nil:
					t.Errorf("a request got %v", err)
				default:
					served.Store(i, true)
					<-release
					_ = s.At(i).Release(context.WithoutCancel(ctx), lease.Ref())
				}
			})
		}
		await.True(t, "all wait or are refused", func() bool {
			n := 0
			refused.Range(func(any, any) bool { n++; return true })
			return s.Count(t, "select count(*) from fence.waiters")+n == 4
		})
		await.True(t, "the owners stand in the same order in both queues", func() bool {
			return s.Count(t, `select count(*) from fence.waiters a, fence.waiters b, fence.waiters c, fence.waiters d
				where a.lock = b.lock and a.ticket < b.ticket and c.lock = d.lock and c.ticket < d.ticket and a.lock < c.lock
					and a.owner_id = d.owner_id and b.owner_id = c.owner_id and a.owner_id <> b.owner_id`) == 0
		})
		close(release)
		for _, lease := range held {
			s.Release(t, 0, lease)
		}
		requests.Wait()
	}
	s.ExpectQuiet(t)
}

// Many owners take locks in any order, exclusive and shared, nodes and subtrees, and wait for them. None is left
// waiting: an owner that is refused gives everything back and begins again.
func TestNoOwnerIsLeftInADeadlock(t *testing.T) {
	t.Parallel()
	s := newEngines(t, enginetest.New(t), 3, enginetest.NoPoll)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, stop := context.WithCancel(await.Context(t))
	defer stop()
	var owners sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 12 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		owners.Go(func() {
			for range 12 {
				stuck := time.AfterFunc(enginetest.AnswerLimit, func() {
					t.Errorf("owner %d is left for %s:\n%s", i, enginetest.AnswerLimit, s.Describe(t))
					stop()
				})
				err := s.takeSome(ctx, i, random)
				stuck.Stop()
				mu.Lock()
				switch {
				case err == nil:
					outcomes["served"]++
				case errors.Is(err, store.ErrDeadlock):
					outcomes["refused"]++
				case ctx.Err() == nil:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	owners.Wait()
	if outcomes["served"] == 0 || outcomes["refused"] == 0 {
		t.Errorf("there was no contention: %v", outcomes)
	}
	t.Log(outcomes)
	s.ExpectQuiet(t)
}

// takeSome takes two or three locks of different trees.
func (s *engines) takeSome(ctx context.Context, owner int, random *rand.Rand) (err error) {
	var leases []store.Lease
	defer func() {
		for _, lease := range leases {
			err = errors.Join(err, s.At(random.IntN(3)).Release(context.WithoutCancel(ctx), lease.Ref()))
		}
	}()
	for _, tree := range random.Perm(3)[:2+random.IntN(2)] {
		request := store.AcquireRequest{Lock: store.Name(fmt.Sprint("tree ", tree)), OwnerID: fmt.Sprint("owner ", owner),
			Wait: store.WaitMax, TTL: time.Hour}
		switch random.IntN(4) {
		case 0:
			request.Scope = store.Subtree
		case 1, 2:
			request.Lock += store.Name([]string{"/x", "/y"}[random.IntN(2)])
		}
		if random.IntN(2) == 0 {
			request.Mode = store.Shared
		}
		lease, err := s.At(random.IntN(3)).Acquire(ctx, request)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	return nil
}
