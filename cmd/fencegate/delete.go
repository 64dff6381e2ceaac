package main

import (
	"context"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

type deleteCmd struct {
	clientFlags
	writeFlags
	Resource string `arg:"" help:"Name of the resource, equal to that of its lock. A dot: the lock of \"fencegate run\" that this runs under."`
	Key      string `arg:"" help:"Key of the record."`
	IfMatch  *int64 `help:"Only if the record has this version." placeholder:"VERSION"`
}

// Run deletes a record.
func (c *deleteCmd) Run(ctx context.Context, con *console) error {
	name, err := resource(c.Resource)
	if err != nil {
		return err
	}
	token, err := c.number()
	if err != nil {
		return err
	}
	removal := lockclient.Write{Token: token, LeaseID: c.leaseID(), IfMatch: c.IfMatch}
	return answer(ctx, con, c.clientFlags, resultFields,
		func(ctx context.Context, client *lockclient.Client) (api.WriteResult, error) {
			return client.API().Delete(ctx, name, c.Key, removal)
		})
}
