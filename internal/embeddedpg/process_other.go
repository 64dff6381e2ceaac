//go:build !unix || aix || solaris

package embeddedpg

import (
	"errors"
	"os"
	"os/exec"
)

// Start gets no further than taking a lock here, so none of these is reached with a cluster.

func detach(*exec.Cmd, *account) {}

func killSession(process *os.Process) error { return process.Kill() }

func quit(process *os.Process) error { return process.Kill() }

func interrupt(*os.Process) error { return errors.ErrUnsupported }

func freeze(*os.Process) error { return errors.ErrUnsupported }

func kill(int) error { return errors.ErrUnsupported }

func ownerOf(string) (uint32, error) { return 0, errors.ErrUnsupported }
