package ramdir

import (
	"os"
	"testing"
)

func TestParent(t *testing.T) {
	own := t.TempDir()
	t.Setenv("TMPDIR", own)
	if got := Parent(); got != own {
		t.Errorf("TMPDIR is %s, but got %s", own, got)
	}
	t.Setenv("TMPDIR", "")
	dir, err := os.MkdirTemp(Parent(), "ramdir-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoriesOfOneUserAreNotForAll(t *testing.T) {
	if inMemory(t.TempDir()) {
		t.Error("a directory that others can't write to was taken")
	}
}
