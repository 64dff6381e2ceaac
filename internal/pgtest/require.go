package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// Require returns the path of a program that the test needs. PostgreSQL's own are taken from beside the postgres that
// runs the clusters, so that versions agree; others from the PATH. If it is missing, the test is
// skipped, or fails where CI=true.
func Require(t testing.TB, program string) string {
	t.Helper()
	if binaries, err := embeddedpg.FindBinaries(); err == nil {
		if path, err := exec.LookPath(binaries.Path(program)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, program+" is not installed")
	}
	return path
}

// RequireDump returns the paths of pg_dump and of another program. It skips the test if pg_dump is older than the
// PostgreSQL that runs the clusters, whose data it can't read then: not every installation has its own.
func RequireDump(t testing.TB, restore string) (pgDump, restorePath string) {
	t.Helper()
	pgDump, restorePath = Require(t, "pg_dump"), Require(t, restore)
	output, err := exec.CommandContext(await.Context(t), pgDump, "--version").Output()
	check(t, err)
	var major int
	if _, err := fmt.Sscanf(string(output), "pg_dump (PostgreSQL) %d", &major); err != nil {
		t.Fatalf("pg_dump --version says %q", output)
	}
	if binaries, err := embeddedpg.FindBinaries(); err == nil && major < binaries.Major {
		t.Skipf("pg_dump is of PostgreSQL %d, the server of %d", major, binaries.Major)
	}
	return pgDump, restorePath
}

// Missing ends a test that lacks something: as failed in CI, where everything is to be there, else as skipped.
func Missing(t testing.TB, what string) {
	t.Helper()
	text := what + "\nTo install what tests need, run `make test-deps`"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}
