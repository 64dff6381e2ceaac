//go:build !unix

package embeddedpg

import (
	"errors"
	"os"
	"syscall"
)

// supported returns an error: the private PostgreSQL needs sessions, signals and owners of files.
func supported() error {
	return errors.New("a private PostgreSQL needs a Unix system: name a database (--database-url)")
}

// Nothing calls the rest, since supported returns an error.

func (*account) newSession() *syscall.SysProcAttr { return nil }

func killSession(*os.Process) error { return errors.ErrUnsupported }

func quit(*os.Process) error { return errors.ErrUnsupported }

func interrupt(*os.Process) error { return errors.ErrUnsupported }

func freeze(*os.Process) error { return errors.ErrUnsupported }

func kill(int) error { return errors.ErrUnsupported }

func ownerOf(string) (uint32, error) { return 0, errors.ErrUnsupported }
