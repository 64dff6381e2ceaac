package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/embeddedpg/flock"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// module is fencegate's own, wherever the test is.
const module = "github.com/fencegate/fencegate"

// buildLimit bounds a build. The first one compiles all packages.
const buildLimit = 5 * await.Limit

var (
	plain   = sync.OnceValues(func() (string, error) { return build("fencegate", withoutCgo) })
	checked = sync.OnceValues(func() (string, error) {
		// By default the race detector lets every process sleep for a second when it ends.
		if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10"); err != nil {
			return "", err
		}
		return build("fencegate-race", "CGO_ENABLED=1", "-race")
	})
)

// withoutCgo is the environment that releases are built in.
const withoutCgo = "CGO_ENABLED=0"

// Build returns the path of fencegate, built from this tree without the race detector. The program is in bin/test of the
// clone. All packages share it, so a run of all tests links it once. A later run links again only if the source has
// changed.
func Build(t testing.TB) string {
	t.Helper()
	return must(t, plain)
}

// BuildChecked returns the path of fencegate, built with the race detector if the test was. The program writes what it
// detects to standard error.
func BuildChecked(t testing.TB) string {
	t.Helper()
	if !RaceDetector {
		return must(t, plain)
	}
	return must(t, checked)
}

// BuildChanged builds fencegate, without the race detector, from this tree but for one file, a path in the module, which
// is Changed. It returns the path of the program, which is removed when the test ends.
func BuildChanged(t testing.TB, file string, changes map[string]string) string {
	t.Helper()
	return BuildWith(t, map[string]string{file: Changed(t, file, changes)})
}

// Changed returns the text of a file, a path in the module. Each text of changes, which it must have once, is replaced.
func Changed(t testing.TB, file string, changes map[string]string) string {
	t.Helper()
	if !filepath.IsAbs(file) {
		root, err := moduleDir(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		file = filepath.Join(root, file)
	}
	read, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	source := string(read)
	for old, replacement := range changes {
		if count := strings.Count(source, old); count != 1 {
			t.Fatalf("%s has the text %q %d times, want once", file, old, count)
		}
		source = strings.Replace(source, old, replacement, 1)
	}
	return source
}

// BuildWith builds fencegate as BuildChanged does, with other files, or more: paths in the module and their contents.
func BuildWith(t testing.TB, files map[string]string) string {
	t.Helper()
	root, err := moduleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir, replaced := t.TempDir(), map[string]string{}
	for path, text := range files {
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		replaced[path] = filepath.Join(dir, fmt.Sprint(len(replaced)))
		err = errors.Join(err, os.WriteFile(replaced[path], []byte(text), 0o600))
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "fencegate")
	text, marshalErr := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err := errors.Join(err, marshalErr, os.WriteFile(overlay, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildLimit)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-overlay", overlay, "-o", program,
		"./cmd/fencegate")
	command.Dir, command.Env = root, append(os.Environ(), withoutCgo)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return program
}

func must(t testing.TB, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build links the program unless it is up to date, which the go command decides. A lock keeps other test processes from
// doing the same work at the same time. Programs that run keep their file: the go command replaces it by a new one.
func build(name, cgo string, flags ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	root, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = flock.Release(lock) }()
	if err := flock.Wait(ctx, lock); err != nil {
		return "", fmt.Errorf("wait for another build of %s: %w", path, err)
	}
	args := append([]string{"build", "-buildvcs=false", "-trimpath", "-o", path}, flags...)
	command := exec.CommandContext(ctx, "go", append(args, "./cmd/fencegate")...)
	command.Dir, command.Env = root, append(os.Environ(), cgo)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}

func moduleDir(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s: %w", module, err)
	}
	return strings.TrimSpace(string(root)), nil
}
