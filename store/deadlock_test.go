package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/store"
)

// hold is how an owner has what the owner before him in a ring waits for.
type hold struct {
	name        string
	has, wants  store.AcquireRequest // of the lock with the name of the place, which a Lock here follows
	inSession   bool
	byPlaceOnly bool // somebody else has the lock: the owner is before the other in the line
}

var holds = []hold{
	{name: "leases"},
	{name: "a reader in a writer's way", has: store.AcquireRequest{Mode: store.Shared}},
	{name: "a writer in a reader's way", wants: store.AcquireRequest{Mode: store.Shared}},
	{name: "places in the line", byPlaceOnly: true},
	{name: "a place before a reader", byPlaceOnly: true, wants: store.AcquireRequest{Mode: store.Shared}},
	{name: "a name below the subtree", has: store.AcquireRequest{Lock: "/below/it"}, wants: store.AcquireRequest{Scope: store.Subtree}},
	{name: "the subtree above", has: store.AcquireRequest{Scope: store.Subtree}, wants: store.AcquireRequest{Lock: "/below/it"}},
	{name: "a place below the subtree", byPlaceOnly: true, has: store.AcquireRequest{Lock: "/below"}, wants: store.AcquireRequest{Scope: store.Subtree}},
	{name: "sessions", inSession: true},
}

// ring is owners of whom each has something, and all but the last wait for what the next has.
type ring struct {
	*services
	hold
	prefix string
	leases []store.Lease // of the owners, or of outsiders before them
	waits  []<-chan outcome
	places []<-chan outcome
}

func (r *ring) owner(place int) string { return fmt.Sprint("owner ", place%len(r.waits)) }

func (r *ring) request(of store.AcquireRequest, owner, place int) store.AcquireRequest {
	of.Lock = store.Name(fmt.Sprintf("%s/%d", r.prefix, place%len(r.waits))) + of.Lock
	of.OwnerID = r.owner(owner)
	return of
}

// wanted is what an owner waits for: what the next has.
func (r *ring) wanted(place int) store.AcquireRequest { return r.request(r.wants, place, place+1) }

// buildRing has all but the last wait.
func buildRing(t *testing.T, s *services, h hold, size int) *ring {
	t.Helper()
	r := &ring{services: s, hold: h, prefix: uuid.NewString(), waits: make([]<-chan outcome, size)}
	for place := range size {
		request := r.request(h.has, place, place)
		switch {
		case h.inSession:
			session, err := s.at(place).CreateSession(patient(t), store.SessionRequest{OwnerID: request.OwnerID})
			if err != nil {
				t.Fatal(err)
			}
			request.SessionID = session.ID
		case h.byPlaceOnly:
			outsider := request
			outsider.OwnerID = "outsider"
			r.leases = append(r.leases, s.acquire(t, place, outsider))
			r.places = append(r.places, s.queue(t, place+1, request))
			continue
		}
		r.leases = append(r.leases, s.acquire(t, place, request))
	}
	for place := range size - 1 {
		r.waits[place] = s.queue(t, place, r.wanted(place))
	}
	return r
}

// unwind has the last owner give back what he has, and the others in turn: all are served.
func (r *ring) unwind(t *testing.T) {
	t.Helper()
	if r.byPlaceOnly {
		for place, lease := range r.leases {
			r.release(t, place, lease)
			r.leases[place] = granted(t, r.places[place])
		}
	}
	for place := len(r.waits) - 1; place >= 0; place-- {
		r.release(t, place, r.leases[place])
		if place > 0 {
			lease := granted(t, r.waits[place-1])
			r.release(t, place, lease)
		}
	}
}

// A wait that would close a cycle is refused with it, whichever way the owners are in each other's way; and nobody else is.
func TestDeadlockIsRefused(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for _, h := range holds {
		for _, size := range []int{2, 3, 10} {
			t.Run(fmt.Sprintf("%s, %d", h.name, size), func(t *testing.T) {
				r := buildRing(t, s, h, size)
				last := r.wanted(size - 1)
				last.Wait = store.WaitMax
				_, err := s.at(size).Acquire(patient(t), last)
				var deadlock *store.DeadlockError
				if !errors.As(err, &deadlock) || !errors.Is(err, store.ErrDeadlock) {
					t.Fatalf("the last was told %v", err)
				}
				var want []store.Wait
				for place := range size {
					waits := r.wanted((size - 1 + place) % size)
					want = append(want, store.Wait{OwnerID: waits.OwnerID, Lock: waits.Lock})
				}
				if !slices.Equal(deadlock.Cycle, want) {
					t.Errorf("the cycle is %v, not %v", deadlock.Cycle, want)
				}
				last.Wait = 0
				if _, err := s.at(size).Acquire(patient(t), last); !errors.Is(err, store.ErrLeaseHeld) {
					t.Errorf("a try, which does not wait, was told %v", err)
				}
				r.unwind(t)
			})
		}
	}
	s.expectQuiet(t)
}

// Of two that close a cycle at the same instant exactly one is refused, and the other served when the refused one's owner gives back what he has.
func TestDeadlockAtTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 2, noPoll)
	for round := range 60 {
		locks := [2]store.Name{store.Name(fmt.Sprint("left ", round)), store.Name(fmt.Sprint("right ", round))}
		var leases [2]store.Lease
		var waits [2]<-chan outcome
		for i := range 2 {
			leases[i] = s.acquire(t, i, store.AcquireRequest{Lock: locks[i], OwnerID: fmt.Sprint("owner ", i)})
		}
		for i := range 2 {
			waits[i] = goAcquire(patient(t), s.at(i+round), store.AcquireRequest{Lock: locks[1-i], OwnerID: fmt.Sprint("owner ", i), Wait: store.WaitMax})
		}
		refused := 0
		var first outcome
		select {
		case first = <-waits[0]:
		case first = <-waits[1]:
			refused = 1
		case <-time.After(soon):
			t.Fatal("nobody was refused")
		}
		if !errors.Is(first.err, store.ErrDeadlock) {
			t.Fatalf("the first answer is %+v", first)
		}
		unanswered(t, waits[1-refused])
		s.release(t, 0, leases[refused])
		s.release(t, 1, granted(t, waits[1-refused]))
		s.release(t, 1, leases[1-refused])
	}
	s.expectQuiet(t)
}

// Two owners who have nothing wait for the same two locks, each with two requests at the same instant: either both stand in the same order in
// both lines, or one of the requests is refused.
func TestDeadlockOfPlacesAtTheSameInstant(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for round := range 40 {
		locks := [2]store.Name{store.Name(fmt.Sprint("left ", round)), store.Name(fmt.Sprint("right ", round))}
		held := []store.Lease{
			s.acquire(t, 0, store.AcquireRequest{Lock: locks[0], OwnerID: "outsider"}), s.acquire(t, 0, store.AcquireRequest{Lock: locks[1], OwnerID: "outsider"}),
		}
		var asked sync.WaitGroup
		var refused, served sync.Map
		release := make(chan struct{})
		for i := range 4 {
			ctx, cancel := context.WithCancel(patient(t))
			asked.Go(func() {
				defer cancel()
				lease, err := s.at(i/2+i%2).Acquire(ctx, store.AcquireRequest{Lock: locks[i%2], OwnerID: fmt.Sprint("owner ", i/2), Wait: store.WaitMax})
				switch {
				case errors.Is(err, store.ErrDeadlock):
					refused.Store(i, true)
				case err != nil:
					t.Errorf("a request was told %v", err)
				default:
					served.Store(i, true)
					<-release
					_ = s.at(i).Release(context.WithoutCancel(ctx), lease.Ref())
				}
			})
		}
		await(t, "all wait or are refused", func() bool {
			n := 0
			refused.Range(func(any, any) bool { n++; return true })
			return s.count(t, "select count(*) from fence.waiters")+n == 4
		})
		await(t, "the owners stand in the same order in both queues", func() bool {
			return s.count(t, `select count(*) from fence.waiters a, fence.waiters b, fence.waiters c, fence.waiters d
				where a.lock = b.lock and a.ticket < b.ticket and c.lock = d.lock and c.ticket < d.ticket and a.lock < c.lock
					and a.owner_id = d.owner_id and b.owner_id = c.owner_id and a.owner_id <> b.owner_id`) == 0
		})
		close(release)
		for _, lease := range held {
			s.release(t, 0, lease)
		}
		asked.Wait()
	}
	s.expectQuiet(t)
}

// What looks like a cycle and is none, is not refused.
func TestNoDeadlockWhereThereIsNone(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for name, end := range map[string]func(t *testing.T, r *ring){
		"an expired lease breaks it": func(t *testing.T, r *ring) {
			s.exec(t, "update fence.leases set expires_at = clock_timestamp(), check_at = '-infinity' where lock = $1", r.leases[1].Lock)
		},
		"a released lease breaks it": func(t *testing.T, r *ring) { s.release(t, 0, r.leases[1]) },
		"an ended session breaks it": func(t *testing.T, r *ring) {
			s.exec(t, "update fence.sessions set expires_at = clock_timestamp(), check_at = '-infinity' where session_id = $1", r.leases[1].SessionID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := buildRing(t, s, hold{inSession: name == "an ended session breaks it"}, 3)
			end(t, r)
			last := s.queue(t, 2, r.wanted(2))
			if _, err := newSweeper(t, s.Store, store.SweeperConfig{}).Sweep(patient(t)); err != nil {
				t.Error(err)
			}
			s.release(t, 0, granted(t, r.waits[0]))
			s.release(t, 0, r.leases[0])
			s.release(t, 2, granted(t, last))
			s.release(t, 2, r.leases[2])
			s.release(t, 1, granted(t, r.waits[1]))
		})
	}
	t.Run("an owner waits for a lease of his own", func(t *testing.T) {
		lease := s.acquire(t, 0, store.AcquireRequest{Lock: "own", OwnerID: "owner"})
		first := s.queue(t, 1, store.AcquireRequest{Lock: "own", OwnerID: "owner"})
		second := s.queue(t, 2, store.AcquireRequest{Lock: "own", OwnerID: "owner"})
		s.release(t, 0, lease)
		s.release(t, 0, granted(t, first))
		s.release(t, 0, granted(t, second))
	})
	t.Run("readers beside each other", func(t *testing.T) {
		var leases [2]store.Lease
		for i := range 2 {
			leases[i] = s.acquire(t, i, store.AcquireRequest{Lock: store.Name(fmt.Sprint("readers ", i)), OwnerID: fmt.Sprint("reader ", i), Mode: store.Shared})
		}
		for i := range 2 {
			s.release(t, i, s.acquire(t, i, store.AcquireRequest{Lock: leases[1-i].Lock, OwnerID: leases[i].OwnerID, Mode: store.Shared, Wait: time.Minute}))
		}
		s.release(t, 0, leases[0])
		s.release(t, 1, leases[1])
	})
	s.expectQuiet(t)
}

// Many owners take locks in any order, exclusive and shared, alone and with all below, and wait for them. Nobody is left waiting: whoever
// is refused gives everything back and begins again.
func TestNobodyIsLeftInADeadlock(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	var owners sync.WaitGroup
	var mu sync.Mutex
	told := map[string]int{}
	for i := range 12 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		owners.Go(func() {
			for range 12 {
				err := s.takeSome(ctx, i, random)
				mu.Lock()
				switch {
				case err == nil:
					told["served"]++
				case errors.Is(err, store.ErrDeadlock):
					told["refused"]++
				case ctx.Err() == nil:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	stuck := time.AfterFunc(soon-2*time.Second, func() { t.Errorf("somebody is left:\n%s", s.describe(t)) })
	owners.Wait()
	stuck.Stop()
	if told["served"] == 0 || told["refused"] == 0 {
		t.Errorf("there was no contention: %v", told)
	}
	t.Log(told)
	s.expectQuiet(t)
}

// takeSome takes two or three locks of different trees.
func (s *services) takeSome(ctx context.Context, owner int, random *rand.Rand) (err error) {
	var leases []store.Lease
	defer func() {
		for _, lease := range leases {
			err = errors.Join(err, s.at(random.IntN(3)).Release(context.WithoutCancel(ctx), lease.Ref()))
		}
	}()
	for _, tree := range random.Perm(3)[:2+random.IntN(2)] {
		request := store.AcquireRequest{Lock: store.Name(fmt.Sprint("tree ", tree)), OwnerID: fmt.Sprint("owner ", owner), Wait: store.WaitMax, TTL: time.Hour}
		switch random.IntN(4) {
		case 0:
			request.Scope = store.Subtree
		case 1, 2:
			request.Lock += store.Name([]string{"/x", "/y"}[random.IntN(2)])
		}
		if random.IntN(2) == 0 {
			request.Mode = store.Shared
		}
		lease, err := s.at(random.IntN(3)).Acquire(ctx, request)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	return nil
}
