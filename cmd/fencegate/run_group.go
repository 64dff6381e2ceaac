//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// group is a command and all that it starts: a process group of its own.
type group struct {
	pid int
	// states are those of the leader; the last is how it ended.
	states   chan syscall.WaitStatus
	terminal *terminal // nil where this process does not have the terminal in its hands
}

// startGroup starts a command. If this process is in the foreground of a terminal, the command is from then on.
func startGroup(program string, arguments, environment []string, streams streams) (*group, error) {
	stdin, isFile := streams.in.(*os.File)
	stdout, outIsFile := streams.out.(*os.File)
	stderr, errIsFile := streams.err.(*os.File)
	if !isFile || !outIsFile || !errIsFile {
		return nil, errors.New("the command needs the standard streams of a process")
	}
	command := &exec.Cmd{
		Path: program, Args: arguments, Env: environment, Stdin: stdin, Stdout: stdout, Stderr: stderr,
		SysProcAttr: groupAttributes(),
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	g := &group{pid: command.Process.Pid, states: make(chan syscall.WaitStatus, 16), terminal: terminalOf(stdin)}
	// From here on the process is waited for below, and not by its handle.
	_ = command.Process.Release()
	go g.reap()
	if g.terminal != nil {
		g.resume()
	}
	return g, nil
}

// reap waits for the leader. Unlike os.Process it also notices stops.
func (g *group) reap() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(g.pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		g.states <- status
		if err != nil || status.Exited() || status.Signaled() {
			return
		}
	}
}

// send sends a signal to all processes of the group. It ignores those that have ended.
func (g *group) send(number syscall.Signal) { _ = syscall.Kill(-g.pid, number) }

// empty reports whether the group has no process left. Zombies that no parent has waited for still count.
func (g *group) empty() bool { return errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH) }

// stopped is called when the leader was stopped. At a terminal this process stops, too, with all of its job: so the
// shell gets the terminal.
func (g *group) stopped(by syscall.Signal) {
	switch {
	case g.terminal == nil:
	case by == syscall.SIGTTIN || by == syscall.SIGTTOU:
		g.resume() // it was stopped for reading from the terminal before it was in the foreground
	default:
		g.terminal.take()
		_ = syscall.Kill(0, syscall.SIGSTOP)
	}
}

// stopSelf stops this process, until it is sent SIGCONT. It can't renew the lease then.
func (g *group) stopSelf() {
	g.terminal.take()
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// resume continues the group, in the foreground if this process is there.
func (g *group) resume() {
	g.terminal.give(g.pid)
	g.send(syscall.SIGCONT)
}
