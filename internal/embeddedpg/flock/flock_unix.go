//go:build unix

package flock

import (
	"errors"
	"os"
	"syscall"
)

// Try takes the exclusive lock of an open file unless somebody else has it. It returns the operating system's error.
func Try(file *os.File) (locked bool, err error) {
	err = flock(file, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func unlock(file *os.File) error { return flock(file, syscall.LOCK_UN) }

// flock calls flock(2). What it is called for here never blocks, and so is never interrupted.
func flock(file *os.File, how int) error {
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		return &os.PathError{Op: "flock", Path: file.Name(), Err: err}
	}
	return nil
}
