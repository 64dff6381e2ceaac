package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type acquireCmd struct {
	clientFlags
	Lock      string         `arg:"" help:"Name of the lock."`
	OwnerID   string         `help:"Who asks." default:"${owner}"`
	TTL       *time.Duration `help:"How long the lease lasts unless it is renewed, 100ms to 24h. Default: 30s." placeholder:"DURATION"`
	RequestID *string        `help:"Asked again with the same, the same lease is returned." placeholder:"TEXT"`
	Metadata  jsonFlag       `help:"A JSON object that others see beside the lease." placeholder:"JSON"`
}

// Run asks for a lease.
func (c *acquireCmd) Run(ctx context.Context, con *console) error {
	ttl, err := milliseconds("--ttl", c.TTL)
	if err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		lease, err := client.Acquire(ctx, c.Lock, api.AcquireRequest{
			OwnerID: c.OwnerID, TTLMS: ttl, RequestID: c.RequestID, Metadata: json.RawMessage(c.Metadata),
		})
		if err != nil {
			return err
		}
		return con.show(lease, leaseFields(lease))
	})
}
