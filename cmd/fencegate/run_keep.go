//go:build unix

package main

import (
	"os"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

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
	case lostReason(lost) == "", lostReason(lost) == "expired", lostReason(lost) == "superseded",
		lostReason(lost) == "max_hold":
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
