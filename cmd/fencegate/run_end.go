package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// runError is a failure with an exit code of its own.
type runError struct {
	code int
	err  error // nil if the command itself has reported it
}

func (e *runError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("the command ended with %d", e.code)
	}
	return e.err.Error()
}

func (e *runError) Unwrap() error { return e.err }

// conclude releases the lease, and reports how the command ended.
func conclude(con *console, lease *lockclient.Lease, status syscall.WaitStatus, lost error) error {
	code := status.ExitStatus()
	if status.Signaled() {
		code = exitRunSignal + int(status.Signal())
	}
	if lost == nil {
		lost = giveBack(con, lease)
	}
	switch {
	case lost != nil:
		// The reason is in the text. A problem in the error would add a hint that does not fit here.
		return &runError{exitRunLeaseLost, fmt.Errorf("the command ended with %d; %s", code, lostText(lease, lost))}
	case code != 0:
		return &runError{code: code}
	}
	return nil
}

// giveBack releases the lease. It returns an error if the lease turns out to be lost.
func giveBack(con *console, lease *lockclient.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	err := lease.Release(ctx)
	if errors.Is(err, lockclient.ErrLeaseLost) {
		return err
	}
	if err != nil {
		con.note("%s could not be released, and is held until its TTL is over: %v", lease.Name(), printableLines(err))
	}
	return nil
}

// errNotRenewed is the end of a lease that has not come yet, and will.
var errNotRenewed = errors.New("renewals have failed")

// lostText says in one line what was lost, and why.
func lostText(lease *lockclient.Lease, why error) string {
	reason := lostReason(why)
	switch {
	case errors.Is(why, errNotRenewed):
		return fmt.Sprintf("the lease on %s (token %d) could not be renewed, and is about to expire", lease.Name(),
			lease.FencingToken())
	case reason == "":
		reason = "expired, and not renewed in time"
	}
	return fmt.Sprintf("the lease on %s (token %d) is lost: %s", lease.Name(), lease.FencingToken(), reason)
}

// withoutDashes takes off the -- before a command.
func withoutDashes(command []string) []string {
	if len(command) > 0 && command[0] == "--" {
		return command[1:]
	}
	return command
}

// cantExecute returns the exit code that shells use for a command that is missing, or that can't be executed.
func cantExecute(err error) error {
	code := exitRunNoExecute
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitRunNotFound
	}
	return &runError{code, err}
}

// lostReason is the gateway's reason for a lost lease; "" if no gateway gave one.
func lostReason(err error) string {
	if problem := lockclient.ProblemOf(err); problem != nil && problem.Code == api.CodeLeaseLost {
		return problem.Reason
	}
	return ""
}
