//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencegate/fencegate/lockclient"
)

// canRun returns an error where no command can be run under a lock.
func canRun() error { return nil }

// runHeld runs a command while the lease lasts, and returns the error of conclude.
func runHeld(
	con *console, held *lockclient.Lease, program string, command, environment []string, grace time.Duration,
	signals <-chan os.Signal,
) error {
	group, err := startGroup(program, command, environment, con.streams)
	if err != nil {
		return cantExecute(err)
	}
	keeper := keeper{lease: held, group: group, signals: signals, grace: grace, note: con.note}
	status, lost := keeper.keep()
	return conclude(con, held, status, lost)
}

// passedOn are the signals that this process passes on to the command.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP,
	syscall.SIGCONT,
}

// ends reports whether a signal ends a process that does not handle it and that waits for a lock.
func ends(sent os.Signal) bool {
	return sent != syscall.SIGTSTP && sent != syscall.SIGCONT
}

// pollGroup is how often a process group that is being stopped is polled: the kernel reports no end of grandchildren.
const pollGroup = 20 * time.Millisecond

// keeper lets a process group run as long as its lease lasts.
//
//	running ──── the leader ends ────────────────────────────────► over
//	   │
//	   │ the lease is lost, or will be when the grace is over
//	   ▼
//	stopping ─── TERM; at the deadline, KILL ──── group empty ────► over
//
// The lease's end is looked for in what gateways answer and on the clock, also after this process was frozen itself:
// whatever wakes it, the clock is read before anything else is done.
type keeper struct {
	lease   *lockclient.Lease
	group   *group
	signals <-chan os.Signal
	grace   time.Duration
	note    func(format string, args ...any)

	leaderEnded bool
	status      syscall.WaitStatus
	lost        error
	deadline    time.Time // of the group, once it is being stopped
}

// keep returns when the group is over: how its leader ended, and why it was stopped, nil if it was not.
func (k *keeper) keep() (syscall.WaitStatus, error) {
	defer k.group.terminal.take()
	timer := time.NewTimer(0)
	defer timer.Stop()
	ended := k.lease.Context().Done()
	for {
		if k.lost == nil {
			k.look()
		}
		if k.over() {
			return k.status, k.lost
		}
		timer.Reset(k.pause())
		select {
		case status := <-k.group.states:
			k.changed(status)
		case sent := <-k.signals:
			k.pass(sent)
		case <-ended:
			ended = nil
		case <-timer.C:
		}
	}
}

// look begins to stop the group if the lease is lost, or if no more is left of it than the grace.
func (k *keeper) look() {
	left, lost := k.lease.ExpiresIn(), k.lease.Err()
	switch {
	case k.leaderEnded || lost == nil && left > k.grace:
		return
	case lost == nil:
		k.lost, k.deadline = errNotRenewed, time.Now().Add(left)
	case slices.Contains([]string{"", "expired", "superseded"}, lostReason(lost)):
		// Its time is over: another may hold the lock by now.
		k.lost, k.deadline = lost, time.Now()
	default:
		k.lost, k.deadline = lost, time.Now().Add(k.grace)
	}
	what := lostText(k.lease, k.lost)
	if left := time.Until(k.deadline); left > 0 {
		k.note("%s: sending TERM to the command, and KILL in %s", what, left.Round(time.Millisecond))
		k.group.send(syscall.SIGTERM)
		k.group.send(syscall.SIGCONT)
		return
	}
	k.note("%s: sending KILL to the command", what)
}

// over reports whether the group is empty. At the deadline it kills what is left.
func (k *keeper) over() bool {
	if k.lost == nil {
		return k.leaderEnded
	}
	if time.Now().Before(k.deadline) {
		return k.leaderEnded && k.group.empty()
	}
	k.group.send(syscall.SIGKILL)
	return k.leaderEnded
}

// pause is how long nothing need be looked at, if nothing happens.
func (k *keeper) pause() time.Duration {
	switch {
	case k.lost == nil:
		return max(pollGroup, k.lease.ExpiresIn()-k.grace)
	case k.leaderEnded:
		return min(pollGroup, max(0, time.Until(k.deadline)))
	case time.Now().Before(k.deadline):
		return time.Until(k.deadline)
	}
	return pollGroup
}

// changed notes what happened to the leader.
func (k *keeper) changed(status syscall.WaitStatus) {
	if status.Stopped() {
		k.group.stopped(status.StopSignal())
		return
	}
	k.leaderEnded, k.status = true, status
}

// pass sends a signal to the group. A group that continues after a stop must still have its lease.
func (k *keeper) pass(sent os.Signal) {
	number, ok := sent.(syscall.Signal)
	switch {
	case !ok:
	case number == syscall.SIGTSTP:
		k.group.send(number)
		k.group.stopSelf()
	case number == syscall.SIGCONT:
		if k.lost == nil {
			k.look()
		}
		if k.lost == nil {
			k.group.resume()
		}
	default:
		k.group.send(number)
	}
}

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

// terminal is the controlling terminal of this process. Its foreground process group may read from it, and gets the
// signals of the keys (INT, QUIT, TSTP). A nil terminal stands for none.
type terminal struct {
	file *os.File
	own  int // this process's group
}

// terminalOf returns nil if the file is no terminal, or if this process is not in its foreground.
func terminalOf(file *os.File) *terminal {
	t := &terminal{file: file, own: unix.Getpgrp()}
	if t.foreground() != t.own {
		return nil
	}
	return t
}

// foreground is the process group that has the terminal; 0 where there is none.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give puts a group into the foreground, if this process is there.
func (t *terminal) give(group int) {
	if t != nil && t.foreground() == t.own {
		_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
	}
}

// take puts this process's group into the foreground again. From the background that stops a process, unless it
// ignores SIGTTOU.
func (t *terminal) take() {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own)
}
