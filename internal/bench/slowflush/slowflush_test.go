//go:build unix

package slowflush

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/bench/peers"
	"github.com/fencegate/fencegate/internal/embeddedpg"
)

// The sleep is PostgreSQL's own, so that a commit can't be faster however fast the machine is.
func TestEachCommitTakesAtLeastTheDelay(t *testing.T) {
	binaries, err := embeddedpg.FindBinaries()
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "fencegate-slow-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	programs := filepath.Join(dir, "bin")
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(programs, 0o755)); err != nil {
		t.Fatal(err)
	}
	const delay = 20 * time.Millisecond
	err = Programs(t.Context(), programs, binaries.Dir, delay)
	if errors.Is(err, peers.ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: filepath.Join(dir, "data"), BinDir: programs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop(t.Context()) })
	db, err := pgx.Connect(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	if _, err := db.Exec(t.Context(), "create table slow (n int)"); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		before := time.Now()
		if _, err := db.Exec(t.Context(), "insert into slow values ($1)", n); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took < delay {
			t.Errorf("a commit took %s, less than its flush", took)
		}
	}
}

func TestDelaysOutsideTheLimitsAreRefused(t *testing.T) {
	for _, delay := range []time.Duration{0, -time.Millisecond, DelayMax + 1} {
		if err := Programs(t.Context(), t.TempDir(), "/nowhere", delay); err == nil {
			t.Errorf("%s was taken", delay)
		}
	}
}
