//go:build unix

package faults

import (
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

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
