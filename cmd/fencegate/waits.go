package main

import (
	"context"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type waitsCmd struct {
	clientFlags
	Lock  string `arg:"" optional:"" help:"Only the waits connected with this lock. Default: the oldest waits of all locks."`
	Limit int    `help:"The most to list, up to 200." default:"100"`
}

// Run lists waits.
func (c *waitsCmd) Run(ctx context.Context, con *console) error {
	if err := con.format.many(); err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		waits, err := admin.New(client).Waits(ctx, c.Lock, c.Limit)
		if err != nil {
			return err
		}
		if waits.Truncated {
			con.note("there are more waits, or more owners that one waits for")
		}
		return list(con, []string{"OWNER", "WAITS FOR", "MODE", "SINCE", "BEHIND"}, waits.Waits, waitRow)
	})
}

func waitRow(wait api.WaitOf) []string {
	behind := make([]string, len(wait.For))
	for i, blocker := range wait.For {
		verb := "is before it"
		if blocker.Relation == "holds" {
			verb = "holds"
		}
		if blocker.Lock != wait.Lock {
			verb += " " + blocker.Lock
		}
		behind[i] = blocker.OwnerID + " (" + verb + ")"
	}
	mode := wait.Mode
	if wait.Scope == "subtree" {
		mode += ", subtree"
	}
	return []string{wait.OwnerID, wait.Lock, mode, clock(wait.QueuedAt), strings.Join(behind, ", ")}
}
