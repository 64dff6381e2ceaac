//go:build !unix

package main

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/lockclient"
)

// canRun returns an error: nothing stops all processes of a command here when the lease is lost.
func canRun() error {
	return errors.New("running a command under a lock needs a Unix system, to stop all its processes when the lease is " +
		"lost: use an SDK, or acquire a lock and write under its token")
}

// runHeld is not called, since canRun returns an error.
func runHeld(
	*console, *lockclient.Lease, string, []string, []string, time.Duration, <-chan os.Signal,
) error {
	return canRun()
}

// passedOn are the signals that end an election's candidate.
var passedOn = []os.Signal{os.Interrupt, syscall.SIGTERM}

// ends reports whether a signal ends a process that waits for a lock.
func ends(os.Signal) bool { return true }
