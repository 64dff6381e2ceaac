//go:build unix

package faults

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// A dump is restored, and grants that were given after it are forgotten: tokens jump past them. Into another cluster,
// and into the one that it was taken from.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	t.Run("into another cluster", func(t *testing.T) {
		t.Parallel()
		source, target := postgres.NewCluster(t), postgres.NewCluster(t, postgres.Stranger())
		testRestore(t, source, target)
	})
	t.Run("in place of the old database", func(t *testing.T) {
		t.Parallel()
		cluster := postgres.NewCluster(t)
		testRestore(t, cluster, cluster)
	})
}

func testRestore(t *testing.T, source, target *postgres.Cluster) {
	t.Helper()
	postgres.RequireDump(t, "pg_restore")
	before := startGateway(t, source.URL())
	kept := grantAll(t, before, "kept")
	dump := filepath.Join(t.TempDir(), "dump")
	runProgram(t, "pg_dump", "--dbname", source.URL(), "--format", "custom", "--file", dump)
	lost := grantAll(t, before, "lost")
	check(t, before.Stop())
	runProgram(t, "pg_restore", "--clean", "--if-exists", "--exit-on-error", "--dbname", target.URL(), dump)

	after := startGateway(t, target.URL())
	for _, lease := range lost {
		wantUnknown(t, after, numbered(lease, 2))
	}
	wantRising(t, after, newestToken(kept, lost))
	wantJumps(t, connect(t, target.URL()), 1)
	for _, lease := range lost {
		wantStale(t, after, numbered(lease, 2))
	}
}

func runProgram(t *testing.T, program string, args ...string) {
	t.Helper()
	if output, err := exec.CommandContext(patient(t), postgres.Require(t, program), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, output)
	}
}

// A database is put back to what it was before it jumped, again and again and as fast as it goes, as if each time
// another sibling of it were promoted: one that knows nothing of the others, whose tokens its own must exceed all the
// same.
func TestTokenJumpsOfUnrelatedHistories(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	db := connect(t, url)
	g := startGateway(t, url)
	newest := int64(0)
	for sibling := range 30 {
		// At once, for a gateway that connects or sweeps meanwhile: in between it would jump too early, or see the sequence
		// go back on the same timeline, and not use the database any more.
		execute(t, db, "do $$ begin lock table fence.database_identity; perform setval('fence.tokens', 1); "+
			"update fence.database_identity set timeline = timeline + 1; end $$")
		for grant := range 3 {
			lease := mustAcquire(t, g, fmt.Sprintf("sibling/%d/%d", sibling, grant), "worker", 0)
			if lease.FencingToken <= newest {
				t.Fatalf("sibling %d granted token %d, one before it had granted %d", sibling, lease.FencingToken, newest)
			}
			newest = lease.FencingToken
		}
	}
	wantJumps(t, db, 30)
}
