package pgtest

import (
	"os"
	"os/exec"
	"testing"

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

// Missing ends a test that lacks something: as failed in CI, where everything is to be there, else as skipped.
func Missing(t testing.TB, what string) {
	t.Helper()
	text := what + "\nTo install what tests need, run `make test-deps`"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}
