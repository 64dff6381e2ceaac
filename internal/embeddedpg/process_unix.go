//go:build unix

package embeddedpg

import (
	"errors"
	"os"
	"syscall"
)

// supported returns an error where a private PostgreSQL can't run.
func supported() error { return nil }

// newSession are the attributes of a process of the account in a session of its own.
func (a *account) newSession() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attributes
}

// killSession kills the head of a session, and its children that did not leave it.
func killSession(process *os.Process) error { return syscall.Kill(-process.Pid, syscall.SIGKILL) }

// quit is PostgreSQL's immediate shutdown: no checkpoint, recovery at the next start. A frozen process is thawed to
// see the signal.
func quit(process *os.Process) error {
	return errors.Join(process.Signal(syscall.SIGQUIT), process.Signal(syscall.SIGCONT))
}

// interrupt is PostgreSQL's fast shutdown: clients are disconnected, a checkpoint is made.
func interrupt(process *os.Process) error { return process.Signal(syscall.SIGINT) }

// freeze stops the process where it is.
func freeze(process *os.Process) error { return process.Signal(syscall.SIGSTOP) }

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// ownerOf returns the user that owns path.
func ownerOf(path string) (uint32, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Uid, nil
}
