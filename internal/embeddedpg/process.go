package embeddedpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// command returns a program to run under the account, in a session of its own: out of reach of the terminal's signals.
func (a *account) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = childEnv(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return cmd
}

// childEnv is what PostgreSQL's programs see of the gateway's environment: no PG* variable, which would change ports,
// data directories and options behind our back, and one locale, so that messages are the same everywhere.
func childEnv(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE"
	})
	return append(kept, "LC_ALL=C")
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
