package rig

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/peers"
)

// The sleep is PostgreSQL's own, so that a commit can't be faster however fast the machine is.
func TestEachCommitTakesAtLeastTheDelay(t *testing.T) {
	if _, err := embeddedpg.FindBinaries(); err != nil {
		t.Skip(err)
	}
	const delay = 20 * time.Millisecond
	r, err := Open(t.Context(), Servers{}, Pace{}, Private{FlushDelay: delay}, io.Discard)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if errors.Is(err, peers.ErrAbsent) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Execute(t.Context(), "create table slow (n int)"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		before := time.Now()
		if err := r.Execute(t.Context(), "insert into slow values (1)"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took < delay {
			t.Errorf("a commit took %s, less than its flush", took)
		}
	}
}
