package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/fencegate/fencegate/lockclient"
)

type electCmd struct {
	underFlags
	outputFlag

	Election string   `arg:"" help:"Name of the election, equal to that of its lock."`
	Metadata string   `help:"What observers read of the leader: a JSON object." placeholder:"JSON"`
	Command  []string `arg:"" optional:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is shown by "fencegate elect --help".
func (electCmd) Help() string {
	return "Waits for the lead, runs the command while leading, and resigns when the command has ended. To lead is to hold " +
		"the lock with the election's name, so it works as \"fencegate run\", " +
		"with the same environment and exit codes. FENCEGATE_TOKEN is the term of office. " +
		"Without a command it shows the lease, and leads until it is interrupted, which is exit code 0, or the term is lost. " +
		"\"fencegate watch\" shows who leads."
}

// Run waits for the lead, and leads.
func (c *electCmd) Run(ctx context.Context, con *console) error {
	if c.Command = withoutDashes(c.Command); len(c.Command) > 0 {
		return c.under(ctx, con, c.Election, c.Command, c.elect)
	}
	if _, err := c.check(c.Election); err != nil {
		return err
	}
	return c.hold(ctx, con, c.Election, c.elect, func(held *lockclient.Lease, signals <-chan os.Signal) error {
		return c.lead(con, held, signals)
	})
}

func (c *electCmd) elect(
	ctx context.Context, client *lockclient.Client, options []lockclient.LeaseOption,
) (*lockclient.Lease, error) {
	if c.Metadata != "" {
		options = append(options, lockclient.WithMetadata(json.RawMessage(c.Metadata)))
	}
	return client.Elect(ctx, c.Election, options...)
}

// lead shows the lease, and lasts until a signal comes or the term is lost.
func (c *electCmd) lead(con *console, held *lockclient.Lease, signals <-chan os.Signal) error {
	if err := con.show(held.Info(), leaseFields(held.Info())); err != nil {
		return err
	}
	for {
		select {
		case <-held.Context().Done():
			return &runError{exitRunLeaseLost, errors.New(lostText(held, held.Err()))}
		case sent := <-signals:
			if !ends(sent) {
				continue
			}
			if lost := giveBack(con, held); lost != nil {
				return &runError{exitRunLeaseLost, errors.New(lostText(held, lost))}
			}
			return nil
		}
	}
}
