package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

type electCmd struct {
	underFlags
	outputFlag

	Election string   `arg:"" help:"Name of the election, equal to that of its lock."`
	Value    string   `help:"What observers read of the leader: JSON, or else a text." placeholder:"TEXT"`
	Observe  bool     `help:"Only show the leader, now and whenever it changes."`
	Command  []string `arg:"" optional:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help is shown by "fencegate elect --help".
func (electCmd) Help() string {
	return "Campaigns in the election, runs the command while leading, and resigns when the command has ended: as " +
		"\"fencegate run\" does with a lock, " +
		"with the same environment and exit codes. FENCEGATE_TOKEN is the term of office. " +
		"Without a command it shows the term, and leads until it is interrupted, which is exit code 0, or the term is lost."
}

// Run campaigns in an election, or observes it.
func (c *electCmd) Run(ctx context.Context, con *console) error {
	c.Command = withoutDashes(c.Command)
	switch {
	case c.Observe && len(c.Command) > 0:
		return usagef("--observe takes no command")
	case c.Observe:
		return c.observe(ctx, con)
	case len(c.Command) > 0:
		return c.under(ctx, con, c.Election, c.Command, c.campaign)
	}
	if _, err := c.check(c.Election); err != nil {
		return err
	}
	return c.hold(ctx, con, c.Election, c.campaign, func(held *lockclient.Lease, signals <-chan os.Signal) error {
		return c.lead(con, held, signals)
	})
}

func (c *electCmd) campaign(
	ctx context.Context, client *lockclient.Client, options []lockclient.LeaseOption,
) (*lockclient.Lease, error) {
	var value any
	switch {
	case c.Value == "":
	case json.Valid([]byte(c.Value)):
		value = json.RawMessage(c.Value)
	default:
		value = c.Value
	}
	return client.Campaign(ctx, c.Election, value, options...)
}

// lead shows the term, and lasts until a signal comes or the term is lost.
func (c *electCmd) lead(con *console, held *lockclient.Lease, signals <-chan os.Signal) error {
	lease := held.Info()
	term := api.Term{
		Election: lease.Lock, Candidate: lease.OwnerID, Term: lease.FencingToken, LeaseID: lease.LeaseID, TTLMS: lease.TTLMS,
		GrantedAt: lease.GrantedAt, ExpiresAt: lease.ExpiresAt, WaitedMS: lease.WaitedMS,
	}
	err := con.show(term, []field{
		{"election", term.Election},
		{"candidate", term.Candidate},
		{"term", strconv.FormatInt(term.Term, 10)},
		{"lease_id", term.LeaseID},
		{"granted_at", clock(term.GrantedAt)},
	})
	if err != nil {
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

// observe shows the leader and its changes, until ctx ends.
func (c *electCmd) observe(ctx context.Context, con *console) error {
	if err := con.format.many(); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.Close()
	watch, err := client.Observe(ctx, c.Election)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer watch.Close()
	return eachUntilEnded(ctx, watch.All(ctx), con.election)
}

// election writes the state of an election on one line.
func (c *console) election(election api.Election) error {
	if c.format.documents() {
		return c.document(election)
	}
	parts := []string{fmt.Sprintf("term %d", election.Term), "no leader"}
	if election.Leader != "" {
		parts[1] = election.Leader + " leads"
		if election.Since != nil {
			parts = append(parts, "since "+clock(*election.Since))
		}
		if election.Value != nil {
			parts = append(parts, string(election.Value))
		}
	}
	if len(election.Candidates) > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", len(election.Candidates)))
	}
	return c.line(parts)
}
