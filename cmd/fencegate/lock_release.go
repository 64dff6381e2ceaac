package main

import (
	"cmp"
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type releaseCmd struct {
	clientFlags
	leaseFlags
	Lock string `arg:"" optional:"" help:"Name of the lock. Default: the one in FENCEGATE_LOCK."`
}

// Run releases a lease.
func (c *releaseCmd) Run(ctx context.Context, con *console) error {
	lock, err := resource(cmp.Or(c.Lock, "."))
	if err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		request := api.ReleaseRequest{OwnerID: c.OwnerID, LeaseID: c.LeaseID, FencingToken: c.Token}
		if err := client.API().Release(ctx, lock, request); err != nil {
			return err
		}
		return con.show(api.Released{Released: true}, []field{
			{"released", lock},
			{"fencing_token", strconv.FormatInt(c.Token, 10)},
		})
	})
}
