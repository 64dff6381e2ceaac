package lockclient

import (
	"context"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// AuditQuery selects entries of the audit log. The zero value is the first page of all.
type AuditQuery struct {
	// Action is what was done, like "lease_broken".
	Action string
	// Principal is who did it.
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
func (a *API) Audit(ctx context.Context, which AuditQuery) (api.Audit, error) {
	query := pageQuery(which.Limit, which.Cursor, map[string]string{
		"action": which.Action, "principal": which.Principal, "name": which.Name, "prefix": which.Prefix,
	})
	for name, instant := range map[string]time.Time{"since": which.Since, "until": which.Until} {
		if !instant.IsZero() {
			query.Set(name, instant.UTC().Format(time.RFC3339Nano))
		}
	}
	call := request{op: "list the audit log", method: http.MethodGet, path: "/v1/audit", query: query}
	return fetch[api.Audit](ctx, a, call, nil)
}
