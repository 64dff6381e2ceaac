//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/bench/rig"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// openRig is a rig on a database of its own.
func openRig(t *testing.T, pace rig.Pace) *rig.Rig {
	t.Helper()
	r, err := rig.Open(t.Context(), rig.Servers{DatabaseURL: postgres.Empty(t), Program: process.Build(t)}, pace,
		rig.Private{}, io.Discard)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// skipIfAbsent skips a test whose peer is not here; on CI, where scripts/test-deps installs it, the test fails.
func skipIfAbsent(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, peers.ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestServices checks each service: one that does not lock would look fast.
func TestServices(t *testing.T) {
	for name, start := range map[string]func(*rig.Rig) (service, error){
		"fencegate x2": func(r *rig.Rig) (service, error) {
			c := &locksCmd{Gateways: []int{2}}
			services, err := c.services(t.Context(), r)
			return services[0], err
		},
		"etcd":  func(r *rig.Rig) (service, error) { return peerLocks(t.Context(), r, "etcd") },
		"redis": func(r *rig.Rig) (service, error) { return peerLocks(t.Context(), r, "redis") },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := start(openRig(t, rig.Pace{Connections: 4}))
			skipIfAbsent(t, err)
			lockers, closeAll, err := s.connectAll(t.Context(), 4)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("locks", func(t *testing.T) { reallyLocks(t, lockers) })
			t.Run("gives up an ended wait", func(t *testing.T) { givesUpEndedWaits(t, lockers) })
			t.Run("counts waiters", func(t *testing.T) { countsWaiters(t, s, lockers) })
			t.Run("releases only its own", func(t *testing.T) { releasesOnlyItsOwn(t, s, lockers[0]) })
			if err := closeAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

func reallyLocks(t *testing.T, lockers []locker) {
	var inside atomic.Int32
	load, err := rig.Repeat(t.Context(), len(lockers), 200*time.Millisecond, func(ctx context.Context, client, _ int) error {
		lease, err := lockers[client].hold(ctx, "locked")
		if err != nil {
			return err
		}
		if inside.Add(1) != 1 {
			t.Error("two clients hold the lock")
		}
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return lease.release(ctx)
	})
	if err != nil || len(load.Latencies) < len(lockers) {
		t.Errorf("%d cycles, %v", len(load.Latencies), err)
	}
}

func givesUpEndedWaits(t *testing.T, lockers []locker) {
	if _, err := lockers[0].hold(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockers[1].hold(ctx, "held"); err == nil {
		t.Error("a lock that is held was granted")
	}
}

// A hand-off is measured, and a crowd complete, once the waiters are counted.
func countsWaiters(t *testing.T, s service, lockers []locker) {
	const lock = "waited-for"
	onlooker := lockers[2]
	if (onlooker.waiting != nil) != s.queues {
		t.Errorf("tells how many wait: %t, takes part in hand-offs: %t", onlooker.waiting != nil, s.queues)
	}
	if !s.queues {
		return
	}
	lease, err := lockers[0].hold(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err := onlooker.waiting(t.Context(), lock); waiting != 0 || err != nil {
		t.Errorf("got %d, %v before one waits", waiting, err)
	}
	var waiter sync.WaitGroup
	waiter.Go(func() {
		lease, err := lockers[1].hold(t.Context(), lock)
		if err == nil {
			err = lease.release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := awaitQueue(t.Context(), onlooker, lock, 1, lookInterval); err != nil {
		t.Error(err)
	}
	if err := lease.release(t.Context()); err != nil {
		t.Error(err)
	}
	waiter.Wait()
}

func releasesOnlyItsOwn(t *testing.T, s service, l locker) {
	if s.name != "redis" {
		return
	}
	lease, err := l.hold(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	client := connectRedis(s.address)
	defer client.Close()
	if err := client.Set(t.Context(), "lost", "another's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := lease.release(t.Context()); !errors.Is(err, errLockLost) {
		t.Errorf("got %v", err)
	}
}
