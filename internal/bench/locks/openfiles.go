//go:build unix

package locks

import (
	"fmt"
	"syscall"
)

// raiseOpenFiles lets this process, and those that it starts, have as many files open as are wanted: above the hard
// limit only where this process may. It returns how many it got.
func raiseOpenFiles(want uint64) (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	got := max(want, limit.Max)
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: got, Max: got}) == nil {
		return got, nil
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Max, Max: limit.Max}); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	return limit.Max, nil
}
