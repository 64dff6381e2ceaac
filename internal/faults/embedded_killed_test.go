//go:build unix

package faults

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/testenv/await"
	testgateway "github.com/fencegate/fencegate/internal/testenv/gateway"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/internal/testenv/process"
)

// fencegate with a PostgreSQL of its own is killed in the middle of everything, and started again on the same data.
func TestServeWithItsOwnDatabaseKilledUnderLoad(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "initdb")
	dataDir := newDataDir(t)
	f := &fleet{members: make([]atomicGateway, 1)}
	// The empty URL wins over one in the environment.
	f.members[0].Store(serve(t, "--database-url", "", "--data-dir", dataDir))
	f.databaseCrashes = true
	l := startLoad(t, f)
	starts := 0
	l.rounds(t, 2, func(int) {
		starts++
		dead := f.at(0)
		processes, err := process.Family(postmasterPID(t, dataDir))
		check(t, err)
		if len(processes) < 5 {
			t.Fatalf("PostgreSQL seems to be the processes %d", processes)
		}
		dead.Kill()
		awaitEnds(t, processes)
		f.members[0].Store(serve(t, "--database-url", "", "--data-dir", dataDir))
		dead.Transport.CloseIdleConnections()
	})
	l.end(t)
	check(t, f.at(0).Stop())

	db := openDataDir(t, dataDir)
	l.verify(t, db)
	wantJumpsAtStarts(t, db, starts)
}

// A gateway does not outlive a PostgreSQL of its own: its supervisor may start both again.
func TestServeEndsWithItsOwnDatabase(t *testing.T) {
	t.Parallel()
	postgres.Require(t, "initdb")
	dataDir := newDataDir(t)
	served, err := testgateway.Run(patient(t), process.BuildChecked(t), "--database-url", "", "--data-dir", dataDir)
	check(t, err)
	t.Cleanup(served.Kill)
	processes, err := process.Family(postmasterPID(t, dataDir))
	check(t, err)
	check(t, syscall.Kill(postmasterPID(t, dataDir), syscall.SIGKILL))
	<-served.Ended()
	if err := served.Stop(); err == nil {
		t.Error("it ended as after a request to end")
	}
	if log := served.Log(); !strings.Contains(log, "the private PostgreSQL ended") {
		t.Errorf("it did not say why it ended:\n%s", log)
	}
	awaitEnds(t, processes)
	openDataDir(t, dataDir)
}

// awaitEnds returns when nothing is left of a PostgreSQL.
func awaitEnds(t *testing.T, processes []int) {
	t.Helper()
	for _, pid := range processes {
		await.True(t, "process "+strconv.Itoa(pid)+" of PostgreSQL ends", func() bool { return !process.Running(pid) })
	}
}

// openDataDir starts the PostgreSQL of a data directory without its gateway, until the test ends.
func openDataDir(t *testing.T, dataDir string) *pgxpool.Pool {
	t.Helper()
	cluster, err := embeddedpg.Start(patient(t), embeddedpg.Config{DataDir: dataDir})
	check(t, err)
	t.Cleanup(func() { check(t, cluster.Stop(context.Background())) })
	return connect(t, cluster.URL())
}

// newDataDir is a data directory that does not exist yet, where PostgreSQL's user can reach it.
func newDataDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "fg-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(parent)) })
	check(t, os.Chmod(parent, 0o711))
	return filepath.Join(parent, "data")
}

func postmasterPID(t *testing.T, dataDir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dataDir, "cluster", "postmaster.pid"))
	check(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	check(t, err)
	return pid
}
