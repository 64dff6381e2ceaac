package main

import (
	"cmp"
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type renewCmd struct {
	clientFlags
	leaseFlags
	Lock string         `arg:"" optional:"" help:"Name of the lock. Default: the one in FENCEGATE_LOCK."`
	TTL  *time.Duration `help:"A new TTL, 100ms to 24h. Default: as it was." placeholder:"DURATION"`
}

// Run renews a lease.
func (c *renewCmd) Run(ctx context.Context, con *console) error {
	ttl, err := milliseconds("--ttl", c.TTL)
	if err != nil {
		return err
	}
	lock, err := resource(cmp.Or(c.Lock, "."))
	if err != nil {
		return err
	}
	request := api.RenewRequest{OwnerID: c.OwnerID, LeaseID: c.LeaseID, FencingToken: c.Token, TTLMS: ttl}
	return answer(ctx, con, c.clientFlags, leaseFields,
		func(ctx context.Context, client *lockclient.Client) (api.Lease, error) {
			return client.API().Renew(ctx, lock, request)
		})
}
