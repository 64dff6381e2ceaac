//go:build unix && !aix && !solaris

package flock

import (
	"errors"
	"os"
	"syscall"
)

func try(file *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case errors.Is(err, syscall.EINTR):
			continue
		default:
			return false, &os.PathError{Op: "flock", Path: file.Name(), Err: err}
		}
	}
}
