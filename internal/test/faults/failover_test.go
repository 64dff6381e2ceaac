//go:build unix

package faults

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

var failoverNames = []string{"job/0", "job/1", "job/2", "job/3", "job/4"}

// The primary dies with grants and writes that its standby never received. Gateways that stay up find the standby once
// it is promoted, and reject every lost token.
func TestFailoverWithLostCommits(t *testing.T) {
	t.Parallel()
	primary := pgtest.NewCluster(t)
	standby := primary.Standby()
	f := startFleet(t, pgtest.FailoverURL(primary, standby), 3)
	kept := grantAll(t, f.at(0), "kept")
	standby.CatchUp()
	standby.Stop()
	lost := grantAll(t, f.at(1), "lost")
	primary.Kill()
	standby.Restart()
	standby.Promote()
	for index := range f.members {
		f.at(index).AwaitReady(t)
	}
	db := connect(t, standby.URL())

	for _, lease := range lost {
		wantUnknown(t, f.at(0), numbered(lease, 2))
	}
	wantJumps(t, db, 1) // when the gateways connected
	newest := newestToken(kept, lost)
	for _, lease := range raceForAll(t, f) {
		if lease.FencingToken <= newest {
			t.Errorf("%s: token %d was granted, %d had been before the failover", lease.Lock, lease.FencingToken, newest)
		}
		mustPut(t, f.at(2), numbered(lease, 1))
		mustRelease(t, f.at(2), lease)
	}
	wantJumps(t, db, 1)
	for _, lease := range append(lost, kept...) {
		wantStale(t, f.at(1), numbered(lease, 2))
	}
	wantRising(t, f.at(1), newestToken(grantAll(t, f.at(0), "later")))
	wantJumps(t, db, 1)
	for _, name := range failoverNames {
		wantWrites(t, db, name, 4) // of kept, of the first after the failover, and two later
	}
}

// grantAll takes each lock in turn, writes once under it and lets go of it.
func grantAll(t *testing.T, g *gateway, owner string) (leases []api.Lease) {
	t.Helper()
	for _, name := range failoverNames {
		lease := mustAcquire(t, g, name, owner, 0)
		mustPut(t, g, numbered(lease, 1))
		mustRelease(t, g, lease)
		leases = append(leases, lease)
	}
	return leases
}

// wantRising grants each lock once more, and expects each token to be greater than all before.
func wantRising(t *testing.T, g *gateway, newest int64) {
	t.Helper()
	for _, lease := range grantAll(t, g, "next") {
		if lease.FencingToken <= newest {
			t.Errorf("%s: token %d was granted after %d", lease.Lock, lease.FencingToken, newest)
		}
		newest = lease.FencingToken
	}
}

// raceForAll acquires every lock at every gateway at once, and returns the leases; each lock has one.
func raceForAll(t *testing.T, f *fleet) (leases []api.Lease) {
	t.Helper()
	ctx := patient(t)
	var mu sync.Mutex
	var racers sync.WaitGroup
	granted := map[string]int{}
	for index := range f.members {
		for _, name := range failoverNames {
			racers.Go(func() {
				lease, err := tryAcquire(ctx, f.at(index), name, api.AcquireRequest{OwnerID: fmt.Sprintf("racer-%d", index)})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					leases = append(leases, lease)
					granted[name]++
				} else if !errors.Is(err, lockclient.ErrLockHeld) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	racers.Wait()
	for _, name := range failoverNames {
		if granted[name] != 1 {
			t.Errorf("%s was granted %d times at once", name, granted[name])
		}
	}
	return leases
}

func newestToken(leases ...[]api.Lease) (newest int64) {
	for _, some := range leases {
		for _, lease := range some {
			newest = max(newest, lease.FencingToken)
		}
	}
	return newest
}

// wantJumpsAtStarts expects that tokens have jumped once at most for each start of the database.
func wantJumpsAtStarts(t *testing.T, db *pgxpool.Pool, starts int) {
	t.Helper()
	if jumps := query[int](t, db, "select jumps from fence.database_identity"); jumps < 1 || jumps > starts {
		t.Errorf("tokens have jumped %d times, after %d starts of the database", jumps, starts)
	}
}

func wantJumps(t *testing.T, db *pgxpool.Pool, want int) {
	t.Helper()
	if jumps := query[int](t, db, "select jumps from fence.database_identity"); jumps != want {
		t.Errorf("tokens have jumped %d times, not %d", jumps, want)
	}
}

// TestFailoverToNextHost checks that a gateway leaves the first host of its URL, whether that is frozen, dead or behind
// a network that swallows packets, once the second is promoted: writes, waits, sweeps and notifications continue.
// Requests have all the time of the test, so that none is freed by its own timeout.
func TestFailoverToNextHost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *gateway, *pgtest.Cluster, *pgtest.Network){
		"frozen":      func(_ *testing.T, _ *gateway, primary *pgtest.Cluster, _ *pgtest.Network) { primary.Freeze() },
		"dead":        func(_ *testing.T, _ *gateway, primary *pgtest.Cluster, _ *pgtest.Network) { primary.Kill() },
		"unreachable": func(_ *testing.T, _ *gateway, _ *pgtest.Cluster, network *pgtest.Network) { network.Hold() },
		"frozen after a restart, before the gateway listens again": frozenBeforeListening,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.NewCluster(t)
			standby := primary.Standby()
			network := primary.Network()
			g := startGateway(t, pgtest.FailoverURL(network, standby), "--request-timeout", "1h", "--statement-timeout", "1h")
			awaitListening(t, g) // by which it finds out that a server was replaced
			held := mustAcquire(t, g, "held", "holder", longTTLMS)
			leases := grantedAll(t, g)
			standby.CatchUp()

			lose(t, g, primary, network)
			swept := metric(t, g, "fencegate_last_sweep_timestamp_seconds")
			var inFlight []<-chan answer
			for _, lease := range leases {
				inFlight = append(inFlight, goPut(t, g, numbered(lease, 1)))
			}
			waiter := goAcquire(t, g, "held", "waiter")
			standby.Promote()
			writable := time.Now()
			mustPut(t, g, numbered(held, 1))
			wantWrites(t, connect(t, standby.URL()), "held", 1)
			t.Logf("the first write succeeded %s after the promotion", time.Since(writable).Round(time.Millisecond))
			for i, answers := range inFlight {
				await.Receive(t, "the answer to a write that the failover caught", answers)
				mustPut(t, g, numbered(leases[i], 1))
			}
			t.Logf("all writes succeeded %s after the promotion", time.Since(writable).Round(time.Millisecond))
			mustRelease(t, g, held)
			if lease := await.Receive(t, "the waiter's lease", waiter); lease.FencingToken <= held.FencingToken {
				t.Errorf("the waiter was granted %d after %d", lease.FencingToken, held.FencingToken)
			}
			awaitListening(t, g)
			await.True(t, "the gateway sweeps again", func() bool {
				return metric(t, g, "fencegate_last_sweep_timestamp_seconds") != swept
			})
		})
	}
}

// frozenBeforeListening freezes a server that was restarted, while the gateway has connections to it but no listener.
func frozenBeforeListening(t *testing.T, g *gateway, primary *pgtest.Cluster, _ *pgtest.Network) {
	for n := 0; ; n++ {
		primary.Restart()
		mustAcquire(t, g, fmt.Sprint("again/", n), "holder", longTTLMS)
		thaw := primary.Freeze()
		if metric(t, g, "fencegate_database_listening") == "0" {
			return
		}
		thaw()
		awaitListening(t, g)
	}
}

func awaitListening(t *testing.T, g *gateway) {
	t.Helper()
	await.True(t, "the gateway listens", func() bool { return metric(t, g, "fencegate_database_listening") == "1" })
}

// grantedAll takes each lock in turn, and keeps it.
func grantedAll(t *testing.T, g *gateway) (leases []api.Lease) {
	t.Helper()
	for _, name := range failoverNames {
		leases = append(leases, mustAcquire(t, g, name, "worker", longTTLMS))
	}
	return leases
}

// goAcquire waits for a lock, and sends the same again while the gateway is unavailable.
func goAcquire(t *testing.T, g *gateway, lock, owner string) <-chan api.Lease {
	t.Helper()
	ctx := patient(t)
	granted := make(chan api.Lease, 1)
	go func() {
		lease, err := tryAcquire(ctx, g, lock, api.AcquireRequest{OwnerID: owner, WaitMS: 60_000})
		if err != nil {
			t.Errorf("%s: %v", lock, err)
		}
		granted <- lease
	}()
	return granted
}

// metric returns the value of a series; "" where the gateway has none.
func metric(t *testing.T, g *gateway, series string) string {
	t.Helper()
	_, metrics := get(t, g, "/metrics")
	_, rest, _ := strings.Cut(metrics, "\n"+series+" ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}
