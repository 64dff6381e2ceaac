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
	OwnerID   string         `help:"The owner." default:"${owner}"`
	TTL       *time.Duration `help:"How long the lease lasts unless it is renewed, 100ms to 24h. Default: 30s." placeholder:"DURATION"`
	RequestID *string        `help:"An acquire that is repeated with the same id returns the same lease." placeholder:"TEXT"`
	Metadata  jsonFlag       `help:"A JSON object that others see beside the lease." placeholder:"JSON"`
	Wait      *time.Duration `help:"Wait in the queue for up to this long, at most 10m. Default: don't wait." placeholder:"DURATION"`
	Shared    bool           `help:"Acquire a shared lease: it excludes exclusive leases only, and can't write."`
	Subtree   bool           `help:"Hold everything below the name, too."`
	SessionID *string        `help:"Let the lease last as long as this session; it has no TTL of its own then." placeholder:"UUID"`
}

// Help is shown by "fencegate lock acquire --help".
func (acquireCmd) Help() string {
	return "An interrupt leaves the queue. To run a command under a lock, \"fencegate run\" also renews and releases " +
		"the lease."
}

// Run acquires a lease.
func (c *acquireCmd) Run(ctx context.Context, con *console) error {
	ttl, err := milliseconds("--ttl", c.TTL)
	if err != nil {
		return err
	}
	wait, err := milliseconds("--wait", c.Wait)
	if err != nil {
		return err
	}
	request := api.AcquireRequest{
		OwnerID: c.OwnerID, TTLMS: ttl, RequestID: c.RequestID, Metadata: json.RawMessage(c.Metadata), SessionID: c.SessionID,
	}
	if wait != nil {
		request.WaitMS = *wait
	}
	if c.Shared {
		request.Mode = "shared"
	}
	if c.Subtree {
		request.Scope = "subtree"
	}
	return c.callWaiting(ctx, time.Duration(request.WaitMS)*time.Millisecond,
		func(ctx context.Context, client *lockclient.Client) error {
			lease, err := client.API().Acquire(ctx, c.Lock, request)
			if err != nil {
				return err
			}
			return con.show(lease, leaseFields(lease))
		})
}
