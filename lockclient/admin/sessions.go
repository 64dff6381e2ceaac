package admin

import (
	"context"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

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
