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

	"github.com/jackc/pgx/v5"

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
		for _, size := range []int{4} {
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

const crowdGateway = "00000000-0000-0000-0000-000000000001"

// crowd has X hold one of the locks hot and cold, and Y the other; many wait for hot, the last of them X, and one for
// cold. Another principal's X waits for many other locks.
func crowd(t testing.TB, url string, waiters int, has string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{
		"insert into fence.gateways values ('" + crowdGateway + "', clock_timestamp() + interval '1 day')",
		"insert into fence.fences (resource, granted_token) values ('hot', 1), ('cold', 2)",
		`insert into fence.leases (lock, fencing_token, lease_id, owner_id, mode, ttl_ms, granted_at, expires_at)
			select lock, row_number() over (order by lock desc), gen_random_uuid(), case lock when '` + has + `' then 'X' else 'Y' end,
				'exclusive', 1000, clock_timestamp(), clock_timestamp() + interval '1 day' from unnest(array['hot', 'cold']) lock`,
		fmt.Sprintf(`insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			select case n when 0 then 'cold' else 'hot' end, '%[1]s', case n when %[2]d then 'X' else 'waiter ' || n end,
				'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 day'
			from generate_series(0, %[2]d) n`, crowdGateway, waiters),
		fmt.Sprintf(`insert into fence.waiters (lock, gateway_id, principal, owner_id, mode, scope, ttl_ms, queued_at, deadline_at)
			select 'theirs ' || n, '%s', 'another', 'X', 'exclusive', 'node', 1000, clock_timestamp(), clock_timestamp() + interval '1 day'
			from generate_series(1, %d) n`, crowdGateway, waiters),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}
