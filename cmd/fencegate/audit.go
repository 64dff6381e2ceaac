package main

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

type auditCmd struct {
	clientFlags
	Action    string        `help:"Only this action, such as lease_broken." placeholder:"ACTION"`
	Principal string        `help:"Only by this principal." placeholder:"NAME"`
	Name      string        `help:"Only on this lock or resource, or the policy of this prefix." placeholder:"NAME"`
	Prefix    string        `help:"Only on names that begin with this text." placeholder:"TEXT"`
	Since     time.Duration `help:"Only those of the last while, such as 24h; 0: all." default:"0"`
	Until     time.Duration `help:"Only those longer ago than this; 0: all." default:"0"`
	Limit     int           `help:"The most to list." default:"100"`
}

// Help is shown by "fencegate audit --help".
func (auditCmd) Help() string {
	return "A line is an action: a policy was set or deleted, a lease broken, a fence set, a key created, rotated or " +
		"revoked, a table protected, unprotected, opened or closed, a database accepted. DETAILS say what was changed."
}

// Run shows the audit log.
func (c *auditCmd) Run(ctx context.Context, con *console) error {
	which := admin.AuditQuery{Action: c.Action, Principal: c.Principal, Name: c.Name, Prefix: c.Prefix}
	var err error
	if which.Since, err = ago("--since", c.Since); err != nil {
		return err
	}
	if which.Until, err = ago("--until", c.Until); err != nil {
		return err
	}
	return c.call(ctx, func(ctx context.Context, client *lockclient.Client) error {
		heading := []string{"WHEN", "ACTION", "NAME", "PRINCIPAL", "ADDRESS", "DETAILS"}
		return listPages(con, c.Limit, heading, auditRow, func(cursor string, limit int) ([]api.AuditEntry, string, error) {
			which.Cursor, which.Limit = cursor, limit
			page, err := admin.New(client).Audit(ctx, which)
			return page.Entries, page.NextCursor, err
		})
	})
}

func auditRow(e api.AuditEntry) []string {
	return []string{
		e.At.UTC().Format(time.RFC3339), e.Action, e.Name, e.Principal, e.Address, string(e.Details),
	}
}
