//go:build unix

package main

import (
	"context"
	"errors"

	"github.com/fencegate/fencegate/internal/bench/locks"
)

type locksCmd struct {
	databaseFlags
	programFlags

	Config locks.Config `embed:""`
	Output string       `help:"text, or json: all samples." enum:"text,json" default:"text"`
	Goals  bool         `help:"Compare what was measured with the targets that we set ourselves."`
}

// Help is shown by --help.
func (locksCmd) Help() string {
	return "Runs two gateways, etcd and Redis as processes of their own, and measures them in turn: how soon the next " +
		"waiter is granted a lock that is " +
		"released, how many locks are acquired and released a second, the same and heartbeats with leases in Redis beside " +
		"redsync and redislock, and what thousands of waiters cost. What is not on the machine is skipped. " +
		"The ratios are of the same round: quote them, not single figures."
}

// Run measures.
func (c *locksCmd) Run(ctx context.Context, to output) (err error) {
	program, _, err := c.programs()
	if err != nil {
		return err
	}
	db, err := c.open(ctx, nil, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	config := c.Config
	config.Program, config.DatabaseURL, config.Settle, config.Progress = program, db.url, locks.DefaultSettle, to.progress
	report, err := locks.Run(ctx, config)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(to.out, report)
	}
	if err := report.WriteTables(to.out); err != nil {
		return err
	}
	if c.Goals {
		return report.WriteGoals(to.out)
	}
	return nil
}
