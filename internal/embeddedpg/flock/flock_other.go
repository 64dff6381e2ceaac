//go:build !unix

package flock

import (
	"errors"
	"os"
)

// Try returns errors.ErrUnsupported: there is no flock(2).
func Try(*os.File) (locked bool, err error) { return false, errors.ErrUnsupported }

func unlock(*os.File) error { return errors.ErrUnsupported }
