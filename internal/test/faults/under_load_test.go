//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/test/journal"
	"github.com/fencegate/fencegate/internal/test/load"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
)

const (
	loadClients = 16
	loadLocks   = 6 // fewer than clients: they contend
	// A crowd fills batches: many writes are in flight in one commit when something breaks.
	crowdClients = 96
	crowdLocks   = 60
)

// underLoad is clients at work on a fleet.
type underLoad struct {
	journal *journal.Journal
	stop    context.CancelFunc
	clients sync.WaitGroup
	found   []load.Violation
	acks    int // when progress was looked at last
}

func startLoad(t *testing.T, f *fleet) *underLoad {
	t.Helper()
	return startClients(t, f, loadClients, loadLocks)
}

func startClients(t *testing.T, f *fleet, clients, lockCount int) *underLoad {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &underLoad{journal: journal.New(), stop: stop}
	t.Cleanup(func() { // where the test failed before the end
		stop()
		l.clients.Wait()
	})
	locks := make([]string, lockCount)
	for i := range locks {
		locks[i] = fmt.Sprintf("faults/%d", i)
	}
	work := l.journal.Exercise(clients, locks, await.Limit)
	work.Gateway = func(random *rand.Rand) *lockclient.API { return f.at(random.IntN(len(f.members))).API }
	work.RenewalsMayBeLost, work.CommitsMayBeLost = f.databaseCrashes, f.losesCommits
	l.clients.Go(func() { l.found = work.Run(ctx, 1) })
	return l
}

// progress returns when so many more writes were acknowledged since the last call. Faults are paced by it, and not by
// time: between two of them, work gets done however slow the machine is.
func (l *underLoad) progress(t *testing.T, acks int) {
	t.Helper()
	await.True(t, "clients get on", func() bool {
		now, sound := l.journal.Progress()
		if !sound {
			l.end(t)
			t.Fatal(l.journal.Summary())
		}
		return now >= l.acks+acks
	})
	l.acks, _ = l.journal.Progress()
}

// lasted reports whether the load has lasted for long enough.
func (l *underLoad) lasted() bool { return l.journal.Now() >= *duration }

// end lets the clients bring to an end what they have begun.
func (l *underLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.clients.Wait()
	for _, violation := range l.found {
		t.Errorf("the load found a violation: %+v", violation)
	}
	t.Log(l.journal.Summary())
}

// verify holds what clients saw against the database.
func (l *underLoad) verify(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	found, err := l.journal.Check(patient(t), db, "")
	check(t, err)
	for _, what := range found[:min(20, len(found))] {
		t.Error(what)
	}
}

// rounds calls fault between stretches of work, at least so many times and until the load has lasted long enough.
func (l *underLoad) rounds(t *testing.T, least int, fault func(round int)) {
	t.Helper()
	begun := time.Now()
	round := 0
	for ; round < least || !l.lasted(); round++ {
		l.progress(t, 40)
		fault(round)
	}
	l.progress(t, 40)
	t.Logf("%d faults in %s", round, time.Since(begun).Round(time.Millisecond))
}

// TestPoolerUnderLoad checks that gateways behind PgBouncer in transaction mode keep the contract while it is killed,
// and while the server behind it is killed or restarted: clients are answered unavailable, and nothing acknowledged is
// lost.
func TestPoolerUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	pooler := postgres.NewPooler(t, cluster.URL())
	f := startFleet(t, pooler.URL(t, cluster.URL()), 2, "--listen-url", cluster.URL())
	f.databaseCrashes = true
	faults := []struct{ begin, end func() }{
		{pooler.Kill, pooler.Start},
		{cluster.Kill, cluster.Restart},
		{cluster.Stop, cluster.Restart},
	}
	l := startLoad(t, f)
	l.rounds(t, len(faults), func(round int) {
		fault := faults[round%len(faults)]
		fault.begin()
		awaitUnreachable(t, f.at(round))
		fault.end()
		for index := range f.members {
			f.at(index).AwaitReady(t)
		}
	})
	l.end(t)
	l.verify(t, connect(t, cluster.URL()))
}
