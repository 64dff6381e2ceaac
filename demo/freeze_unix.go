//go:build unix

package demo

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

func freeze(ctx context.Context, process *os.Process) error {
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	for ctx.Err() == nil {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		switch {
		case err != nil:
			return fmt.Errorf("freeze: %w", err)
		case pid != 0 && status.Stopped():
			return nil
		case pid != 0:
			return fmt.Errorf("freeze: the process has ended: %v", status)
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// ownGroup makes a process the head of a group. When its parent dies while it is frozen, the system ends it: POSIX sends
// SIGHUP and SIGCONT to a stopped group that becomes orphaned.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func thaw(process *os.Process) error { return process.Signal(syscall.SIGCONT) }

// mapNumber maps the first number of a file into memory, and sees what another process writes to it. unmap ends that.
func mapNumber(path string) (number *uint32, unmap func(), err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	const size = 4
	memory, err := syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	number = (*uint32)(unsafe.Pointer(unsafe.SliceData(memory))) //nolint:gosec // another process changes it
	return number, func() { _ = syscall.Munmap(memory) }, nil
}
