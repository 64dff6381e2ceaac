package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencegate/fencegate/internal/test/spec/drive"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// keepAlive keeps a session up until stop is called.
func (s *services) keepAlive(t *testing.T, session store.Session) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := s.At(i).KeepAlive(context.Background(), session.ID); err != nil {
				t.Errorf("keep the session alive: %v", err)
				return
			}
			time.Sleep(session.TTL / 20)
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		keeping.Wait()
	})
}

const (
	runningSQL = "select count(*) from fence.leases l where l.ended_at is null and l.expires_at > clock_timestamp()"
	notOverSQL = "select count(*) from fence.leases where ended_at is null"
	openSQL    = "select count(*) from fence.fences where open"
)

// TestSessionOfManyLeases checks that one heartbeat keeps many leases alive; that all of them end when it
// stops, before any sweep; that waiters are granted at that moment, without polling; and that a sweep then closes all
// fences.
func TestSessionOfManyLeases(t *testing.T) {
	t.Parallel()
	const leases = 300 // several portions of what a sweep settles at a time
	s := newServices(t, newTestbed(t), 3, noPoll)
	session := s.OpenSession(t, 0, "owner", 4*time.Second)
	stop := s.keepAlive(t, session)
	defer stop()
	var locks []store.Name
	for n := range leases {
		lock := store.Name(fmt.Sprint("lock/", n))
		if n%10 == 0 {
			lock = "alone/" + lock // in nobody's subtree
		}
		locks = append(locks, lock)
	}
	acquireIn(t, s.At(1).Store, session, locks)
	var waiting []<-chan outcome
	for i := range 30 {
		waiting = append(waiting, goAcquire(patient(t), s.At(i),
			store.AcquireRequest{Lock: store.Name(fmt.Sprint("lock/", 10*i+1)), OwnerID: fmt.Sprint("next ", i),
				Wait: store.WaitMax}))
	}
	waiting = append(waiting, goAcquire(patient(t), s.At(1),
		store.AcquireRequest{Lock: "lock", OwnerID: "all", Scope: store.Subtree, Wait: store.WaitMax}))
	s.AwaitQueued(t, len(waiting))
	stop()
	kept, err := s.At(1).KeepAlive(patient(t), session.ID)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Count(t, runningSQL); n != leases {
		t.Errorf("%d leases run, want %d", n, leases)
	}

	var served sync.WaitGroup
	for i, answers := range waiting {
		served.Go(func() {
			got := <-answers
			if got.Err != nil {
				t.Error(got.Err)
				return
			}
			if got.Lease.GrantedAt.Before(kept.ExpiresAt) {
				t.Errorf("a lock was granted %s before the session was over", kept.ExpiresAt.Sub(got.Lease.GrantedAt))
			}
			s.giveBack(t, i, got.Lease)
		})
	}
	served.Wait()
	swept, err := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{}).Sweep(patient(t))
	if err != nil || swept.SessionsExpired != 1 {
		t.Errorf("the sweep did %+v (%v)", swept, err)
	}
	for what, sql := range map[string]string{"leases are not over": notOverSQL, "fences are open": openSQL} {
		if n := s.Count(t, sql); n != 0 {
			t.Errorf("after the sweep %d %s", n, what)
		}
	}
	s.ExpectQuiet(t)
}

// TestSessionEndsDuringAcquires checks that a session that ends while leases in it and its locks are asked for leaves
// no lease running, refuses later acquires, and frees all its locks.
func TestSessionEndsDuringAcquires(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	for round := range 8 {
		session := s.OpenSession(t, round, "owner", 0)
		var acquiring sync.WaitGroup
		var inside, lost atomic.Int64
		begun := make(chan struct{}, 100)
		for i := range 12 {
			lock := store.Name(fmt.Sprintf("lock %d/%d", round, i%6))
			acquiring.Go(func() {
				ctx := patient(t)
				for n := 0; ; n++ {
					// Each request has an owner of its own: an owner that waits behind others for its own lock would be in
					// a deadlock.
					request := store.AcquireRequest{Lock: lock, OwnerID: fmt.Sprintf("owner %d of %d", n, i), SessionID: session.ID,
						Wait: time.Minute}
					if i%2 == 0 {
						request.Mode = store.Shared
					}
					_, err := s.At(i).Acquire(ctx, request)
					if errors.Is(err, store.ErrLeaseLost) {
						lost.Add(1)
						return
					}
					if err != nil {
						t.Errorf("in the session: %v", err)
						return
					}
					inside.Add(1)
					begun <- struct{}{}
				}
			})
			acquiring.Go(func() {
				lease, err := s.At(i+1).Acquire(patient(t), store.AcquireRequest{Lock: lock, OwnerID: fmt.Sprint("other ", i),
					Wait: store.WaitMax})
				if err != nil {
					t.Errorf("beside the session: %v", err)
					return
				}
				s.giveBack(t, i, lease)
			})
		}
		for range 6 {
			<-begun
		}
		if _, err := s.At(round+1).EndSession(patient(t), session.ID); err != nil {
			t.Error(err)
		}
		if n := s.Count(t, "select count(*) from fence.leases where ended_at is null and session_id = $1",
			session.ID); n != 0 {
			t.Errorf("%d leases run in a session that has ended", n)
		}
		acquiring.Wait()
		if _, err := s.At(round).EndSession(patient(t), session.ID); err != nil {
			t.Errorf("ended twice: %v", err)
		}
	}
	if n := s.Count(t, notOverSQL); n != 0 {
		t.Errorf("%d leases are not over", n)
	}
	s.ExpectQuiet(t)
}

// giveBack releases a lease in the background of a test.
func (s *services) giveBack(t *testing.T, at int, lease store.Lease) {
	if err := s.At(at).Release(context.Background(), lease.Ref()); err != nil {
		t.Errorf("give back %s: %v", lease.Lock, err)
	}
}

// TestKeepAliveRacesExpiry checks that no other owner is granted a lock before the end of the session that the last
// answered keepalive gave.
func TestKeepAliveRacesExpiry(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	var racing sync.WaitGroup
	for racer := range 4 {
		racing.Go(func() {
			for round := range 6 {
				s.raceExpiry(t, racer, round)
			}
		})
	}
	racing.Wait()
	s.ExpectQuiet(t)
}

func (s *services) raceExpiry(t *testing.T, racer, round int) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	ttl := 100 * time.Millisecond
	session, err := s.At(racer).CreateSession(ctx, store.SessionRequest{OwnerID: "owner", TTL: ttl})
	lock := store.Name(uuid.NewString())
	if err == nil {
		_, err = s.At(racer).Acquire(ctx, store.AcquireRequest{Lock: lock, OwnerID: "owner", SessionID: session.ID})
	}
	if errors.Is(err, store.ErrLeaseLost) {
		return // the machine was busy
	}
	if err != nil {
		t.Error(err)
		return
	}
	next := goAcquire(ctx, s.At(racer+1), store.AcquireRequest{Lock: lock, OwnerID: fmt.Sprint("next ", racer),
		Wait: store.WaitMax})
	until := session.ExpiresAt
	pause := ttl - 8*time.Millisecond
	for {
		time.Sleep(pause)
		pause += time.Duration(1+round%3) * time.Millisecond
		kept, err := s.At(racer+2).KeepAlive(ctx, session.ID)
		if errors.Is(err, store.ErrLeaseLost) {
			break
		}
		if err != nil {
			t.Error(err)
			return
		}
		until = kept.ExpiresAt
	}
	got := <-next
	switch {
	case got.Err != nil:
		t.Error(got.Err)
	case got.Lease.GrantedAt.Before(until):
		t.Errorf("the lock was granted %s before the end of the session that its owner was answered",
			until.Sub(got.Lease.GrantedAt))
	default:
		s.giveBack(t, racer, got.Lease)
	}
}

// TestWaitersOfAnExpiredSession checks that waiters in an expired session hold up nobody, and are answered with the
// next sweep.
func TestWaitersOfAnExpiredSession(t *testing.T) {
	t.Parallel()
	s := newServices(t, newTestbed(t), 3, noPoll)
	holder := s.Acquire(t, 0, store.AcquireRequest{Lock: "lock", OwnerID: "holder"})
	session := s.OpenSession(t, 0, "owner", time.Hour)
	var inside []<-chan outcome
	for i := range 4 {
		inside = append(inside, s.Queue(t, i, store.AcquireRequest{Lock: "lock", OwnerID: "owner", SessionID: session.ID}))
	}
	next := s.Queue(t, 2, store.AcquireRequest{Lock: "lock", OwnerID: "next"})
	s.Exec(t, drive.ExpireSession, session.ID)
	s.Release(t, 0, holder)
	s.Release(t, 0, granted(t, next))
	if _, err := newSweeper(t, s.At(0).Store, postgres.SweeperConfig{}).Sweep(patient(t)); err != nil {
		t.Error(err)
	}
	for _, answers := range inside {
		var lost *store.LostError
		if got := answered(t, answers); !errors.As(got.Err, &lost) || lost.Reason != "expired" || lost.Lock != "" {
			t.Errorf("a waiter in the expired session got %+v, want that the session is lost", got)
		}
	}
	s.ExpectQuiet(t)
}
