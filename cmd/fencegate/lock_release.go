package main

import (
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type releaseCmd struct {
	clientFlags
	leaseFlags
	Lock string `arg:"" help:"Name of the lock."`
}

// Run releases a lease.
func (c *releaseCmd) Run(ctx context.Context, con *console) error {
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		request := api.ReleaseRequest{OwnerID: c.OwnerID, LeaseID: c.LeaseID, FencingToken: c.Token}
		if err := client.API().Release(ctx, c.Lock, request); err != nil {
			return err
		}
		return con.show(api.Released{Released: true}, []field{
			{"released", c.Lock},
			{"fencing_token", strconv.FormatInt(c.Token, 10)},
		})
	})
}
