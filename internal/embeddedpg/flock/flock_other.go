//go:build !unix || aix || solaris

package flock

import (
	"errors"
	"os"
)

func try(file *os.File) (bool, error) { return false, unlock(file) }

func unlock(file *os.File) error {
	return &os.PathError{Op: "flock", Path: file.Name(), Err: errors.ErrUnsupported}
}
