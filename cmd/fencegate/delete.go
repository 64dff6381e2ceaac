package main

import (
	"context"

	"github.com/fencegate/fencegate/lockclient"
)

type deleteCmd struct {
	clientFlags
	Resource string    `arg:"" help:"Name of the resource, which is that of its lock."`
	Key      string    `arg:"" help:"Key of the record."`
	Token    tokenFlag `help:"Fencing token of the lease: 34, or 34.2 for the second of many writes under it." required:"" placeholder:"TOKEN"`
	LeaseID  string    `help:"Let it be checked that the token is of this lease." placeholder:"UUID"`
	IfMatch  *int64    `help:"Only if the record has this version." placeholder:"VERSION"`
}

// Run deletes a record.
func (c *deleteCmd) Run(ctx context.Context, con *console) error {
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		result, err := client.Delete(ctx, c.Resource, c.Key, lockclient.Removal{
			Token: c.Token.FencingToken, LeaseID: c.LeaseID, IfMatch: c.IfMatch,
		})
		if err != nil {
			return err
		}
		return con.show(result, resultFields(result))
	})
}
