package main

import (
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type breakCmd struct {
	clientFlags
	Lock   string `arg:"" help:"Name of the lock."`
	Reason string `help:"Why; kept with the lease." required:"" placeholder:"TEXT"`
}

// Run breaks the lease that runs on a lock.
func (c *breakCmd) Run(ctx context.Context, con *console) error {
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		broken, err := admin.New(client).Break(ctx, c.Lock, api.BreakRequest{Reason: c.Reason})
		if err != nil {
			return err
		}
		return con.show(broken, []field{
			{"broken", broken.Lock},
			{"owner_id", broken.OwnerID},
			{"fencing_token", strconv.FormatInt(broken.FencingToken, 10)},
		})
	})
}
