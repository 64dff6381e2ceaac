package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/embeddedpg"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// Some behaviour is that of a whole test process. The test binary then runs itself, for TestProcess alone, with what
// that is to do in this variable.
const processEnv = "FENCEGATE_POSTGRES_PROCESS"

// TestProcess is not a test of its own, but what the other processes of the tests below do.
func TestProcess(t *testing.T) {
	switch os.Getenv(processEnv) {
	case "use": // the shared server as it is found
		url := Empty(t)
		Migrated(t)
		fmt.Println("system", queryValue[int64](t, url, "select system_identifier from pg_control_system()"))
		fmt.Println("scratch", scratch.path)
	case "leave": // die without any cleaning up
		Empty(t)
		fmt.Println("scratch", scratch.path)
		process, err := os.FindProcess(os.Getpid())
		check(t, err)
		check(t, process.Kill())
		select {}
	case "lack": // have no binaries
		shared.once.Do(func() { shared.server, shared.err = startEmbedded(t.Context(), lackBinaries) })
		Empty(t)
	}
}

func lackBinaries() (embeddedpg.Binaries, error) {
	return embeddedpg.Binaries{}, embeddedpg.ErrNoBinaries
}

// runProcess runs the test binary as another process and returns what it prints.
func runProcess(t *testing.T, what string, env ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestProcess$")
	cmd.Env = append(append(os.Environ(), processEnv+"="+what), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// field returns what a process printed after a word.
func field(t *testing.T, output, word string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
			return rest
		}
	}
	t.Fatalf("no %q in %q", word, output)
	return ""
}

func TestKilledProcessLeavesNothing(t *testing.T) {
	if _, err := embeddedpg.FindBinaries(); err != nil {
		process.Missing(t, err.Error())
	}
	output, err := runProcess(t, "leave", urlEnv+"=")
	if err == nil {
		t.Fatalf("it was not killed: %s", output)
	}
	left := field(t, output, "scratch")
	lock, err := lockFile(t.Context(), filepath.Join(left, "1", "postgres.lock"))
	check(t, err) // its PostgreSQL has ended
	check(t, lock.Close())

	output, err = runProcess(t, "use", urlEnv+"=")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next process left it there: %v", err)
	}
	if _, err := os.Stat(scratch.path); scratch.path != "" && err != nil {
		t.Errorf("the next process took away what is in use: %v", err)
	}
}

func TestNothingToTestWith(t *testing.T) {
	output, err := runProcess(t, "lack", urlEnv+"=", "CI=true")
	if err == nil || !strings.Contains(output, "--- FAIL") {
		t.Errorf("in CI it did not fail: %s", output)
	}
	for _, word := range []string{"make test-deps", urlEnv + " is not set", "no PostgreSQL binaries"} {
		if !strings.Contains(output, word) {
			t.Errorf("the failure does not mention %q: %s", word, output)
		}
	}
	output, err = runProcess(t, "lack", urlEnv+"=", "CI=")
	if err != nil || !strings.Contains(output, "--- SKIP") || !strings.Contains(output, "make test-deps") {
		t.Errorf("elsewhere it was not skipped: %v: %s", err, output)
	}
}
