//go:build unix

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/pgtest"
)

const (
	durationEnv     = "FENCEGATE_FAULTS_DURATION"
	durationDefault = 2 * time.Second

	// patience bounds every wait; none should need a tenth of it.
	patience = time.Minute
)

var duration = flag.Duration("faults.duration", 0, "how long each load lasts, at least; default "+durationEnv+", or 2s")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencegate-faults-")
	if err == nil && *duration == 0 {
		*duration, err = durationOf(os.Getenv(durationEnv))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = sync.OnceValues(func() (string, error) { return build(filepath.Join(dir, "fencegate")) })
	return pgtest.Main(m)
}

func durationOf(text string) (time.Duration, error) {
	if text == "" {
		return durationDefault, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", durationEnv, err)
	}
	return d, nil
}

// program is the path of fencegate as it stands in this tree, built by the first test that needs it.
var program func() (string, error)

// build makes a program that looks for races if the tests do: what it finds is in its log, see checkLog.
func build(path string) (string, error) {
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	output, err := exec.Command("go", append(args, "github.com/fencegate/fencegate/cmd/fencegate")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return path, nil
}

func fencegate(t *testing.T) string {
	t.Helper()
	path, err := program()
	check(t, err)
	return path
}

// patient is a context that ends long after everything should have happened.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), *duration+patience)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls, for what other processes do and nothing tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func ptr[T any](value T) *T { return &value }
