package flock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	check(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, file *os.File, want bool) {
	t.Helper()
	locked, err := flock.Try(file)
	check(t, err)
	if locked != want {
		t.Fatalf("locked: %v, want %v", locked, want)
	}
}

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := open(t, path), open(t, path)
	try(t, first, true)
	try(t, second, false)

	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := flock.Wait(ctx, second); !errors.Is(err, cause) {
		t.Fatalf("waited for a lock that is held: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- flock.Wait(t.Context(), second) }()
	check(t, first.Close())
	check(t, <-waited)
	try(t, open(t, path), false)
}

// inherit starts a child that has a file open until its input ends.
func inherit(t *testing.T, file *os.File) (end func()) {
	t.Helper()
	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{file}
	stdin, err := child.StdinPipe()
	check(t, err)
	check(t, child.Start())
	return func() {
		check(t, stdin.Close())
		check(t, child.Wait())
	}
}

func TestChildrenInheritLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file := open(t, path)
	try(t, file, true)
	end := inherit(t, file)
	check(t, file.Close())
	try(t, open(t, path), false)
	end()
	try(t, open(t, path), true)
}

func TestReleaseIsForAllCopies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file := open(t, path)
	try(t, file, true)
	defer inherit(t, file)()
	check(t, flock.Release(file))
	try(t, open(t, path), true)
}
