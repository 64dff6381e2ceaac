//go:build unix

package faults

import (
	"syscall"
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
		thaw := freezeDatabase(t, cluster)
		l.turnedAway(t)
		f.at(round).awaitUnreachable(t)
		thaw()
		for index := range f.members {
			f.at(index).awaitReady(t)
		}
	})
	verify(t, l.end(t), connect(t, cluster.URL()))
}

// freezeDatabase stops the postmaster first, so that no process is born behind its back.
func freezeDatabase(t *testing.T, cluster *pgtest.Cluster) (thaw func()) {
	t.Helper()
	check(t, syscall.Kill(cluster.PID(), syscall.SIGSTOP))
	processes := family(t, cluster.PID())
	thaw = func() {
		for _, pid := range processes {
			_ = syscall.Kill(pid, syscall.SIGCONT) // its error is that the process has ended
		}
	}
	t.Cleanup(thaw)
	for _, pid := range processes {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return thaw
}
