// Package process is for tests that run programs: it builds fencegate, collects what programs write, and shows their
// state.
package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// State is the state of a process as ps shows it, such as "Ss" or "T"; "" if there is none.
func State(pid int) string {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(state))
}

// Running reports whether a process runs. A zombie process does not.
func Running(pid int) bool {
	state := State(pid)
	return state != "" && state[0] != 'Z'
}

// Family returns a process and its children, in order.
func Family(parent int) ([]int, error) {
	listing, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, err
	}
	pids := []int{parent}
	for line := range strings.Lines(string(listing)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(fields[0])
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// libfaketime is where Debian and others install it.
const libfaketime = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// Libfaketime returns the library that shows programs another clock. Without it the test is skipped, or fails where
// CI=true.
func Libfaketime(t testing.TB) string {
	t.Helper()
	libraries, _ := filepath.Glob(libfaketime)
	if len(libraries) == 0 {
		Missing(t, "libfaketime was not found: "+libfaketime)
	}
	return libraries[0]
}

// Missing ends a test that lacks something: as failed in CI, where everything is to be there, else as skipped.
func Missing(t testing.TB, what string) {
	t.Helper()
	text := what + "\nTo install what tests need, run `make test-deps`"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// Buffer collects what processes and goroutines write, while others read it. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends text. It never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TempParent returns a directory for temporary ones that outlive processes but not the machine. It is in memory where
// the system offers that with room to spare: making and dropping a database creates and removes hundreds of files, which
// takes some file systems longer than all the rest of a test. TMPDIR, where it is set, is obeyed instead.
func TempParent() string {
	if os.Getenv("TMPDIR") == "" && inMemory(sharedMemory) {
		return sharedMemory
	}
	return os.TempDir()
}

// sharedMemory is where Linux has a file system in memory that every user may use.
const sharedMemory = "/dev/shm"
