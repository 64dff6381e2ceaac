//go:build unix

package faults

import (
	"testing"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// PostgreSQL is frozen while it executes statements. Gateways have given those up by the time it continues.
func TestDatabaseFrozenUnderLoad(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t)
	f := startFleet(t, cluster.URL(), 2, "--request-timeout", "200ms")
	l := startLoad(t, f)
	l.rounds(t, 3, func(round int) {
		thaw := cluster.Freeze()
		l.turnedAway(t)
		awaitUnreachable(t, f.at(round))
		thaw()
		for index := range f.members {
			f.at(index).AwaitReady(t)
		}
	})
	l.end(t)
	l.verify(t, connect(t, cluster.URL()))
}
