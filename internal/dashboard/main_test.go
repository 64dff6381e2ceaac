//go:build unix

package dashboard

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/pgtest"
)

// patience bounds every wait; none should need a tenth of it.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencegate-dashboard-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = sync.OnceValues(func() (string, error) { return build(filepath.Join(dir, "fencegate")) })
	chromium.dir = filepath.Join(dir, "browser")
	defer chromium.stop()
	return pgtest.Main(m)
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls, for what other processes do and nothing tells.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func ptr[T any](value T) *T { return &value }
