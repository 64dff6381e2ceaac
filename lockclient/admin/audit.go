package admin

import (
	"context"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// AuditQuery selects entries of the audit log. The zero value is the first page of all.
type AuditQuery struct {
	// Action is what was done, like "lease_broken".
	Action string
	// Principal did it.
	Principal string
	// Name is the exact name of the lock or resource, or the prefix of the policy.
	Name string
	// Prefix is that of the name; any text.
	Prefix string
	// Since leaves out the entries before it, and Until those at it and after it, by the database's clock. The zero time
	// leaves out nothing.
	Since, Until time.Time
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Audit lists what administrators did, the newest first, a page at a time.
func (c *Client) Audit(ctx context.Context, which AuditQuery) (api.Audit, error) {
	query := map[string]string{
		"action": which.Action, "principal": which.Principal, "name": which.Name, "prefix": which.Prefix,
		"since": timeOf(which.Since), "until": timeOf(which.Until),
		"limit": limitOf(which.Limit), "cursor": which.Cursor,
	}
	return fetch[api.Audit](ctx, c, lockclient.Call{Op: "list the audit log", Path: "/v1/audit", Query: query})
}
