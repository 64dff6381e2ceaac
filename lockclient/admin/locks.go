package admin

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// LocksQuery selects locks. The zero value is the first page of all.
type LocksQuery struct {
	// Prefix is that of the name.
	Prefix string
	// State is free, held, expired, or empty for all.
	State string
	// Sort is name (the default), expires_at, granted_at, fencing_token or queue; Order asc (the default) or desc.
	Sort, Order string
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Locks lists locks, a page at a time.
func (c *Client) Locks(ctx context.Context, which LocksQuery) (api.Locks, error) {
	return fetch[api.Locks](ctx, c, lockclient.Call{Op: "list locks", Path: "/v1/locks", Query: map[string]string{
		"prefix": which.Prefix, "state": which.State, "sort": which.Sort, "order": which.Order,
		"limit": limitOf(which.Limit), "cursor": which.Cursor,
	}})
}

// Break ends all leases on the lock and closes the fence: the holder's writes are ErrTokenStale from then on. It returns
// ErrNotFound if no token is admitted.
func (c *Client) Break(ctx context.Context, lock string, body api.BreakRequest) (api.Broken, error) {
	return fetch[api.Broken](ctx, c, lockclient.Call{
		Op: "break", Method: http.MethodPost, Path: "/v1/locks/{name}/break", Name: lock, Body: body,
	})
}

// SessionsQuery selects sessions. The zero value is the first page of all.
type SessionsQuery struct {
	OwnerID string
	// State is live, ended, expired, or empty for all.
	State string
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Sessions lists sessions without their secrets, the newest first, a page at a time.
func (c *Client) Sessions(ctx context.Context, which SessionsQuery) (api.SessionInfos, error) {
	return fetch[api.SessionInfos](ctx, c, lockclient.Call{
		Op: "list sessions", Path: "/v1/sessions", Query: map[string]string{
			"owner_id": which.OwnerID, "state": which.State, "limit": limitOf(which.Limit), "cursor": which.Cursor,
		}})
}

// Waits returns the wait-for graph around a lock, or with an empty name the oldest waits of all: at most limit (1 to
// 200; 0: 200). It is a snapshot.
func (c *Client) Waits(ctx context.Context, lock string, limit int) (api.Waits, error) {
	return fetch[api.Waits](ctx, c, lockclient.Call{
		Op: "list waits", Path: "/v1/waits", Query: map[string]string{"lock": lock, "limit": limitOf(limit)},
	})
}
