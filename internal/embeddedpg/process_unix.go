//go:build unix && !aix && !solaris

package embeddedpg

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// detach makes cmd a session of its own, out of reach of the terminal's signals, under the account.
func detach(cmd *exec.Cmd, account *account) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if account != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: account.uid, Gid: account.gid}
	}
}

// killSession kills the process that detach made the head of a session, and its children that did not leave it.
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
