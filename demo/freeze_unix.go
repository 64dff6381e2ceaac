//go:build unix

package demo

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
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

func thaw(process *os.Process) error { return process.Signal(syscall.SIGCONT) }
