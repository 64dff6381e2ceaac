//go:build unix

package locks

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/bench"
	"github.com/fencegate/fencegate/internal/bench/peers"
)

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

func start(t *testing.T, peer func(context.Context, string) (service, error), name string) service {
	t.Helper()
	started, err := peer(t.Context(), name)
	skipIfAbsent(t, err)
	t.Cleanup(func() { _ = started.peer.Stop() })
	return started
}

// startFencegate runs two gateways.
func startFencegate(t *testing.T) service {
	t.Helper()
	running, err := config(t).startGateways(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.stop(); err != nil {
			t.Error(err)
		}
	})
	return running.service(2)
}

// connect makes clients that are closed when the test ends.
func connect(t *testing.T, s service, count int) []locker {
	t.Helper()
	lockers, closeAll, err := s.connectAll(t.Context(), count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAll() })
	return lockers
}

// TestServices checks each service. To start them takes longer than all of these checks.
func TestServices(t *testing.T) {
	for name, start := range map[string]func(*testing.T) service{
		"fencegate x2": startFencegate,
		nameEtcd:       func(t *testing.T) service { return start(t, startEtcd, nameEtcd) },
		nameRedis:      func(t *testing.T) service { return start(t, startRedis, nameRedis) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			t.Run("locks", func(t *testing.T) { reallyLocks(t, s) })
			t.Run("gives up an ended wait", func(t *testing.T) { givesUpEndedWaits(t, s) })
			t.Run("counts waiters", func(t *testing.T) { countsWaiters(t, s) })
			t.Run("hands off if it has a queue", func(t *testing.T) { handsOffByQueue(t, s) })
			if name == nameRedis {
				t.Run("does not release a lost lock", func(t *testing.T) { releasesOnlyItsOwn(t, s) })
			}
		})
	}
}

// A service that does not lock would look fast.
func reallyLocks(t *testing.T, s service) {
	lockers, closeAll, err := s.connectAll(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int32
	load, err := bench.Repeat(t.Context(), len(lockers),
		200*time.Millisecond, func(ctx context.Context, client, _ int) error {
			release, err := lockers[client].acquire(ctx, "locked")
			if err != nil {
				return err
			}
			if inside.Add(1) != 1 {
				t.Error("two clients hold the lock")
			}
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			return release(ctx)
		})
	if err != nil || len(load.Latencies) < len(lockers) {
		t.Errorf("%d cycles, %v", len(load.Latencies), err)
	}
	if err := closeAll(); err != nil {
		t.Error(err)
	}
}

func handsOffByQueue(t *testing.T, s service) {
	latencies, err := s.handOffs(t.Context(), "handed-off", 4)
	if !s.queues {
		if err == nil {
			t.Errorf("got %v from a service without a queue", latencies)
		}
		return
	}
	if err != nil || len(latencies) != 4 {
		t.Errorf("got %v, %v", latencies, err)
	}
	for _, latency := range latencies {
		if latency <= 0 || latency > waitMax {
			t.Errorf("a hand-off took %s", latency)
		}
	}
}

func releasesOnlyItsOwn(t *testing.T, s service) {
	lockers := connect(t, s, 1)
	release, err := lockers[0].acquire(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	if err := lockers[0].(*redisLocker).client.Set(t.Context(), "lost", "another's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := release(t.Context()); !errors.Is(err, errLockLost) {
		t.Errorf("got %v", err)
	}
}

func givesUpEndedWaits(t *testing.T, s service) {
	lockers := connect(t, s, 2)
	if _, err := lockers[0].acquire(t.Context(), "held"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockers[1].acquire(ctx, "held"); err == nil {
		t.Error("a lock that is held was granted")
	}
}

// A hand-off is measured, and a crowd complete, once the waiters are counted.
func countsWaiters(t *testing.T, s service) {
	const lock = "waited-for"
	lockers := connect(t, s, 3)
	onlooker, queues := lockers[2].(queue)
	if queues != s.queues {
		t.Errorf("has a queue: %t, takes part in hand-offs: %t", queues, s.queues)
	}
	if !queues {
		return
	}
	release, err := lockers[0].acquire(t.Context(), lock)
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err := onlooker.waiting(t.Context(), lock); waiting != 0 || err != nil {
		t.Errorf("got %d, %v before one waits", waiting, err)
	}
	var waiter sync.WaitGroup
	waiter.Go(func() {
		release, err := lockers[1].acquire(t.Context(), lock)
		if err == nil {
			err = release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := awaitQueue(t.Context(), onlooker, lock, 1, lookInterval); err != nil {
		t.Error(err)
	}
	if waiting, err := onlooker.waiting(t.Context(), lock); waiting != 1 || err != nil {
		t.Errorf("got %d, %v while one waits", waiting, err)
	}
	if err := release(t.Context()); err != nil {
		t.Error(err)
	}
	waiter.Wait()
}
