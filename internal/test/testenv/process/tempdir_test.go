package process

import (
	"os"
	"testing"
)

func TestTempParent(t *testing.T) {
	own := t.TempDir()
	t.Setenv("TMPDIR", own)
	if got := TempParent(); got != own {
		t.Errorf("TMPDIR is %s, but got %s", own, got)
	}
	t.Setenv("TMPDIR", "")
	dir, err := os.MkdirTemp(TempParent(), "fencegate-")
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
