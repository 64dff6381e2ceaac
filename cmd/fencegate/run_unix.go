//go:build unix

package main

import (
	"os"
	"syscall"
	"time"

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
