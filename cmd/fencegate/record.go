package main

import (
	"context"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// recordCmds are the commands below "fencegate record".
type recordCmds struct {
	Ls recordLsCmd `cmd:"" help:"List the records of a resource by key, without their values."`
}

type recordLsCmd struct {
	clientFlags
	Resource string `arg:"" help:"Name of the resource. A dot: the lock in FENCEGATE_LOCK."`
	Prefix   string `help:"Only keys that begin with this." placeholder:"TEXT"`
	Limit    int    `help:"The most to list." default:"100"`
}

// Run lists records.
func (c *recordLsCmd) Run(ctx context.Context, con *console) error {
	name, err := resource(c.Resource)
	if err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		heading := []string{"KEY", "VERSION", "TOKEN", "TYPE", "SIZE", "UPDATED"}
		return listPages(con, c.Limit, heading, recordRow, func(cursor string, limit int) ([]api.RecordInfo, string, error) {
			page, err := client.API().Records(ctx, name, lockclient.RecordsQuery{Prefix: c.Prefix, Limit: limit, Cursor: cursor})
			return page.Records, page.NextCursor, err
		})
	})
}

func recordRow(record api.RecordInfo) []string {
	return []string{
		record.Key, strconv.FormatInt(record.Version, 10),
		api.FencingToken{Token: record.FencingToken, Sequence: record.Sequence}.String(), record.ContentType,
		strconv.FormatInt(record.Size, 10), clock(record.UpdatedAt),
	}
}
