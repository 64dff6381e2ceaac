//go:build unix

package faults

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
)

var failoverNames = []string{"job/0", "job/1", "job/2", "job/3", "job/4"}

// The primary dies with grants and writes that its standby never received. Gateways that stay up find the standby once
// it is promoted, and reject every lost token.
func TestFailoverWithLostCommits(t *testing.T) {
	t.Parallel()
	primary := postgres.NewCluster(t)
	standby := primary.Standby()
	f := startFleet(t, postgres.FailoverURL(primary, standby), 3)
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

// Two standbys of one primary are promoted, the second after the first was lost, and it knows nothing of that one: both
// call themselves the same timeline.
func TestSiblingsPromotedApart(t *testing.T) {
	t.Parallel()
	primary := postgres.NewCluster(t)
	first, second := primary.Standby(), primary.Standby()
	g := startGateway(t, primary.URL())
	newest := newestToken(grantAll(t, g, "of the primary"))
	check(t, g.Stop())
	first.CatchUp()
	second.CatchUp()
	primary.Kill()

	var identities []string
	for _, sibling := range []*postgres.Cluster{first, second} {
		sibling.Promote()
		g := startGateway(t, sibling.URL())
		db := connect(t, sibling.URL())
		wantRising(t, g, newest)
		newest = newestToken(grantAll(t, g, "of a sibling"))
		wantJumps(t, db, 1)
		identities = append(identities, query[string](t, db,
			"select (system_identifier, timeline)::text from fence.database_identity"))
		db.Close()
		check(t, g.Stop())
		sibling.Kill()
	}
	if identities[0] != identities[1] {
		t.Errorf("this is no test: the siblings differ in %s", identities)
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
