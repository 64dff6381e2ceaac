package lockclient

import (
	"context"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// RejectionsQuery selects rejections. The zero value is the first page of all.
type RejectionsQuery struct {
	// Resource is the exact name.
	Resource string
	// Prefix is that of the resource's name; any text.
	Prefix string
	Code   api.Code
	// Reason is that of api.CodeTokenStale: superseded, released, reused, shared or max_hold.
	Reason string
	// Source is the way by which the write arrived.
	Source string
	// OwnerID is the owner of the token's lease.
	OwnerID string
	// Since leaves out groups last seen before it, and Until groups first seen after it, by the gateways' clocks. The
	// zero time leaves out nothing.
	Since, Until time.Time
	// LastSeen lists the group that changed last first; otherwise the newest group is first.
	LastSeen bool
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Rejections lists rejected writes, a page at a time.
func (a *API) Rejections(ctx context.Context, which RejectionsQuery) (api.Rejections, error) {
	query := pageQuery(which.Limit, which.Cursor)
	setIf(query, "resource", which.Resource)
	setIf(query, "prefix", which.Prefix)
	setIf(query, "code", string(which.Code))
	setIf(query, "reason", which.Reason)
	setIf(query, "source", which.Source)
	setIf(query, "owner_id", which.OwnerID)
	for name, instant := range map[string]time.Time{"since": which.Since, "until": which.Until} {
		if !instant.IsZero() {
			query.Set(name, instant.UTC().Format(time.RFC3339Nano))
		}
	}
	if which.LastSeen {
		query.Set("sort", "last_seen")
	}
	call := request{op: "list rejections", method: http.MethodGet, path: "/v1/rejections", query: query}
	return fetch(ctx, a, call, nothing[api.Rejections])
}
