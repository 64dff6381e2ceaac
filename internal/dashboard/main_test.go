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

// patience is the limit of every wait; none should need a tenth of it.
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

// program returns the path of this tree's fencegate. The first test that needs it builds it.
var program func() (string, error)

// build builds fencegate, with the race detector if the tests have it. gateway.start checks the log for races.
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

// eventually polls for an event in another process. what names it.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s", patience, what)
		}
	}
}
