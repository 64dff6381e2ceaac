package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// TestLeft checks how long a lease runs by the times that its copies have left.
func TestLeft(t *testing.T) {
	t.Parallel()
	const silent = -1
	for _, c := range []struct {
		times []time.Duration
		left  time.Duration
		known bool
	}{
		{[]time.Duration{5}, 5, true},
		{[]time.Duration{0}, 0, true},
		{[]time.Duration{silent}, 0, false},
		{[]time.Duration{5, 3, 1}, 3, true},
		{[]time.Duration{5, 3, 0}, 3, true},
		{[]time.Duration{5, 0, 0}, 0, true},
		{[]time.Duration{5, 3, silent}, 3, true},
		{[]time.Duration{5, 0, silent}, 0, false},
		{[]time.Duration{silent, 0, 0}, 0, true},
		{[]time.Duration{5, silent, silent}, 0, false},
		{[]time.Duration{0, silent, silent}, 0, false},
		{[]time.Duration{9, 0, 7, silent, 0}, 0, false},
		{[]time.Duration{9, 0, silent, silent, 0}, 0, false},
		{[]time.Duration{9, 0, 0, silent, 0}, 0, true},
	} {
		if left, known := redislease.LeftOf(c.times); left != c.left || known != c.known {
			t.Errorf("left by %v is %v (known: %t), want %v (%t)", c.times, left, known, c.left, c.known)
		}
	}
}

// TestMinorityOfServersFails checks that a lease is granted, renewed, waited for and released while one of three servers
// is frozen or dead; and that nothing is granted, in bounded time, while two are.
func TestMinorityOfServersFails(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	for name, c := range map[string]struct{ breaks, mends func(*redis.Server) }{
		"frozen": {(*redis.Server).Freeze, (*redis.Server).Thaw},
		"killed": {(*redis.Server).Kill, func(*redis.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := startVoting(t, 3)
			leases := open(t, db, redislease.Config{}, servers...)
			impatient := open(t, db, redislease.Config{Timeout: hasty}, servers...)
			lock, kept := name+"/lock", acquire(t, leases, request(name+"/kept", "A"))
			c.breaks(servers[0])
			lease := acquire(t, leases, request(lock, "A"))
			if _, err := leases.Renew(await.Context(t), lease.Ref(), 0); err != nil {
				t.Errorf("a renewal at two of three: %v", err)
			}
			release(t, leases, lease)
			release(t, leases, acquire(t, leases, waiting(lock, "B")))

			c.breaks(servers[1])
			_, err := impatient.Acquire(await.Context(t), request(lock, "C"))
			if !errors.Is(err, store.ErrProviderUnavailable) || !strings.Contains(err.Error(), "of 3 servers can be used") {
				t.Errorf("an acquire at one of three: %v, want ErrUnavailable", err)
			}
			if name == "killed" { // so that no answer is waited for
				_, err := leases.Acquire(await.Context(t), request(lock, "C"))
				fails(t, "a patient acquire", err, store.ErrProviderUnavailable)
				if n := servers[2].Do("EXISTS", lock); n != "0" {
					t.Error("the server that answers still has the reservation")
				}
			}
			_, err = impatient.Renew(await.Context(t), kept.Ref(), 0)
			fails(t, "a renewal at one of three", err, store.ErrUnavailable)
			_, err = impatient.Left(await.Context(t), []store.LeaseRef{kept.Ref()})
			fails(t, "a look at one of three", err, store.ErrUnavailable)
			_, err = impatient.ReleaseLease(await.Context(t), kept.Ref())
			fails(t, "a release at one of three", err, store.ErrUnavailable)
			c.mends(servers[0])
			c.mends(servers[1])
		})
	}
}

// TestRestartedServerDoesNotVote checks the restart rule: two servers that have lost the keys of a lease can't grant the
// lock again. And a renewed lease outlives that all servers are restarted one after the other, since its key is
// restored.
func TestRestartedServerDoesNotVote(t *testing.T) {
	t.Parallel()
	servers := startVoting(t, 3)
	db := &dueAlways{Database: openDB(t)}
	leases := open(t, db, redislease.Config{LookInterval: 10 * time.Millisecond, Timeout: 5 * time.Second}, servers...)
	lease := acquire(t, leases, request("lock", "A"))

	for _, s := range servers {
		s.RestartEmpty()
		db.set(lease.Ref())
		await.True(t, "the key is restored", func() bool { return s.Do("EXISTS", "lock") == "1" })
	}
	if _, err := leases.Renew(await.Context(t), lease.Ref(), 0); err != nil {
		t.Errorf("a renewal after the restarts: %v", err)
	}
	db.set()
	looks := db.looks.Load()
	await.True(t, "the last look that restores keys is over", func() bool { return db.looks.Load() > looks })
	for _, s := range servers {
		s.Do("DEL", "lock")
	}
	_, err := leases.Acquire(await.Context(t), request("lock", "B"))
	if !errors.Is(err, store.ErrProviderUnavailable) || !strings.Contains(err.Error(), "it votes in") {
		t.Errorf("an acquire from restarted servers: %v, want ErrUnavailable", err)
	}
	for i, stats := range leases.Stats() {
		if !stats.Up || time.Until(stats.QuarantinedUntil) < long {
			t.Errorf("server %d is %+v, want it up and in quarantine", i, stats)
		}
	}
	servers[0].Vote()
	_, err = leases.Acquire(await.Context(t), request("lock", "B"))
	fails(t, "an acquire from one server that votes", err, store.ErrProviderUnavailable)
	servers[1].Vote()
	acquire(t, leases, request("lock", "B"))
}

// TestFreshServersVoteAfterTheTTL checks that servers which fencegate has never seen vote after TTLMax, by themselves.
func TestFreshServersVoteAfterTheTTL(t *testing.T) {
	t.Parallel()
	leases := open(t, openDB(t), redislease.Config{TTLMax: time.Second}, redis.StartN(t, 3)...)
	r := request("lock", "A")
	r.TTL = time.Second
	await.True(t, "the servers vote", func() bool {
		_, err := leases.Acquire(await.Context(t), r)
		return err == nil
	})
}

// TestLongestTTL checks that a renewal without a TTL keeps that of the lease where the longest one is shorter than the
// default, and that no lease is longer.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	leases := open(t, openDB(t), redislease.Config{TTLMax: store.TTLDefault / 2}, startVoting(t, 3)...)
	r := request("lock", "A")
	r.TTL = store.TTLDefault / 2
	lease := acquire(t, leases, r)
	if renewed, err := leases.Renew(await.Context(t), lease.Ref(), 0); err != nil || renewed.TTL != r.TTL {
		t.Errorf("renewed: %+v, %v, want a TTL of %s", renewed, err, r.TTL)
	}
	_, err := leases.Renew(await.Context(t), lease.Ref(), store.TTLDefault)
	fails(t, "a renewal for longer than the limit", err, store.ErrInvalid)
	r.TTL = store.TTLDefault
	_, err = leases.Acquire(await.Context(t), r)
	fails(t, "an acquire for longer than the limit", err, store.ErrInvalid)
}

// TestContention checks that never two of many callers have the lock, and that all get it in the end.
func TestContention(t *testing.T) {
	t.Parallel()
	db, servers := openDB(t), startVoting(t, 3)
	var holders, grants atomic.Int64
	var callers sync.WaitGroup
	for range 3 {
		leases := open(t, db, redislease.Config{PollInterval: 20 * time.Millisecond}, servers...)
		for i := range 3 {
			callers.Go(func() {
				for range 3 {
					lease, err := leases.Acquire(await.Context(t), waiting("lock", fmt.Sprint(i)))
					if err != nil {
						t.Error(err)
						return
					}
					if holders.Add(1) > 1 {
						t.Error("two have the lock")
					}
					grants.Add(1)
					holders.Add(-1)
					if _, err := leases.ReleaseLease(await.Context(t), lease.Ref()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	callers.Wait()
	if n := grants.Load(); n != 27 {
		t.Errorf("%d grants, want 27", n)
	}
}

// dueAlways is a database whose looks are always due for some leases.
type dueAlways struct {
	redislease.Database
	refs  atomic.Pointer[[]store.LeaseRef]
	looks atomic.Int64 // that have begun
}

func (d *dueAlways) set(refs ...store.LeaseRef) { d.refs.Store(&refs) }

func (d *dueAlways) LeasesElsewhere(context.Context, store.Provider, store.Name, int) ([]store.LeaseRef, error) {
	d.looks.Add(1)
	if refs := d.refs.Load(); refs != nil {
		return *refs, nil
	}
	return nil, nil
}
