//go:build !unix || aix || solaris

package flock

import (
	"errors"
	"os"
)

func try(file *os.File) (bool, error) {
	return false, &os.PathError{Op: "flock", Path: file.Name(), Err: errors.ErrUnsupported}
}
