package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type lockLsCmd struct {
	clientFlags
	Prefix string `help:"Only names that begin with this." placeholder:"TEXT"`
	State  string `help:"Only those that are free, held or expired." enum:",free,held,expired" default:"" placeholder:"STATE"`
	Limit  int    `help:"The most to list." default:"100"`
}

// Run lists locks.
func (c *lockLsCmd) Run(ctx context.Context, con *console) error {
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		heading := []string{"LOCK", "STATE", "TOKEN", "OWNER", principalHeading, "EXPIRES"}
		return listPages(con, c.Limit, heading, lockRow, func(cursor string, limit int) ([]api.Lock, string, error) {
			page, err := admin.New(client).Locks(ctx, admin.LocksQuery{Prefix: c.Prefix, State: c.State, Limit: limit,
				Cursor: cursor})
			return page.Locks, page.NextCursor, err
		})
	})
}

func lockRow(lock api.Lock) []string {
	row := []string{lock.Lock, lock.State, strconv.FormatInt(lock.FencingToken, 10), "", "", ""}
	if len(lock.Holders) > 0 {
		first := lock.Holders[0]
		row[3], row[4], row[5] = first.OwnerID, first.Principal, clock(first.ExpiresAt)
	}
	if others := len(lock.Holders) - 1; others > 0 {
		row[3] += fmt.Sprintf(" and %d more", others)
	}
	return row
}
