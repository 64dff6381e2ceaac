package main

import (
	"context"

	"github.com/fencegate/fencegate/lockclient"
)

type runCmd struct {
	underFlags

	Lock    string   `help:"Name of the lock." required:"" placeholder:"NAME"`
	Shared  bool     `help:"Acquire a shared lease: it excludes exclusive leases only, and can't write."`
	Subtree bool     `help:"Hold everything below the name, too."`
	Command []string `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is shown by "fencegate run --help".
func (runCmd) Help() string {
	return "Waits for the lock, runs the command while holding it, and releases it when the command has ended. The " +
		"lease is renewed all the while.\n\n" +
		"The command runs in a process group of its own. If the lease is lost, the whole group is stopped: by TERM, and by " +
		"KILL after --kill-after. " +
		"If renewals fail, TERM is sent early enough for KILL to come before the lease expires, so that the group is " +
		"over before another is granted the lock. " +
		"Signals (INT, TERM, HUP, QUIT, USR1, USR2) are passed on to the group. What the command leaves running in the " +
		"background when it ends, runs on without the lock.\n\n" +
		"It finds FENCEGATE_LOCK, FENCEGATE_TOKEN, FENCEGATE_LEASE_ID, FENCEGATE_OWNER_ID and FENCEGATE_URL in its " +
		"environment. So in it\n" +
		"\"fencegate put . KEY VALUE --sequence 1\" writes under the lease, as long as that is the newest.\n\n" +
		"Exit codes: the command's own (128 and the number if a signal ended it), or\n" +
		"  120  the lock was not acquired: it is held by others\n" +
		"  121  the lease was lost, and the command stopped\n" +
		"  122  the gateway or its database is unavailable\n" +
		"  125  any other failure of fencegate; the command did not run\n" +
		"  126  the command can't be executed\n" +
		"  127  the command was not found\n" +
		"    2  the command line is wrong"
}

// Run runs a command under a lock.
func (c *runCmd) Run(ctx context.Context, con *console) error {
	if c.Command = withoutDashes(c.Command); len(c.Command) == 0 {
		return usagef("name a command to run, after --")
	}
	return c.under(ctx, con, c.Lock, c.Command, func(ctx context.Context, client *lockclient.Client,
		options []lockclient.LeaseOption) (*lockclient.Lease, error) {
		if c.Shared {
			options = append(options, lockclient.Shared())
		}
		if c.Subtree {
			options = append(options, lockclient.Subtree())
		}
		return client.Acquire(ctx, c.Lock, options...)
	})
}
