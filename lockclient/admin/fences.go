package admin

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Fence returns the state of a resource's fence, and its policy. It returns ErrNotFound if the name was never granted
// or written.
func (c *Client) Fence(ctx context.Context, resource string) (api.Fence, error) {
	return fetch[api.Fence](ctx, c, lockclient.Call{
		Op: "get fence of", Path: "/v1/resources/{name}/fence", Name: resource,
	})
}

// SetFence sets the last accepted token and sequence of a fence whose tokens another lock service issues: after one
// that was too great, or when that service's numbers have started anew. It returns ErrNotExternal for every other name.
// After an unknown outcome, look at the fence first: to send the same again could set back what was written meanwhile.
func (c *Client) SetFence(ctx context.Context, resource string, body api.FenceRequest) (api.FenceSet, error) {
	return fetch[api.FenceSet](ctx, c, lockclient.Call{
		Op: "set fence of", Method: http.MethodPut, Path: "/v1/resources/{name}/fence", Name: resource, Body: body,
		Repeat: "look at the fence first: writes may have raised it meanwhile",
	})
}

// Policies lists all policies by prefix.
func (c *Client) Policies(ctx context.Context) (api.Policies, error) {
	return fetch[api.Policies](ctx, c, lockclient.Call{Op: "list policies", Path: "/v1/policies"})
}

// Policy returns the policy that was set on exactly this prefix; "" is the one for every name. It returns ErrNotFound
// if there is none.
func (c *Client) Policy(ctx context.Context, prefix string) (api.Policy, error) {
	return fetch[api.Policy](ctx, c, policyCall("get policy of", http.MethodGet, prefix))
}

// PutPolicy sets the policy of a name and all names below it; "" is every name. Absent fields of body get their
// defaults.
func (c *Client) PutPolicy(ctx context.Context, prefix string, body api.PolicyRequest) (api.Policy, error) {
	call := policyCall("put policy of", http.MethodPut, prefix)
	call.Body = body
	return fetch[api.Policy](ctx, c, call)
}

// DeletePolicy removes a policy: that of the next shorter prefix applies from then on. It returns ErrNotFound if
// there is none on exactly this prefix.
func (c *Client) DeletePolicy(ctx context.Context, prefix string) error {
	return c.api.Call(ctx, policyCall("delete policy of", http.MethodDelete, prefix), nil)
}

func policyCall(op, method, prefix string) lockclient.Call {
	if prefix == "" {
		return lockclient.Call{Op: op + " every name", Method: method, Path: "/v1/policies/"}
	}
	return lockclient.Call{Op: op, Method: method, Path: "/v1/policies/{name}", Name: prefix}
}

// RejectionsQuery selects rejections. The zero value is the first page of all.
type RejectionsQuery struct {
	// Resource is the exact name.
	Resource string
	// Prefix is that of the resource's name; any text.
	Prefix string
	// Key is that of the record; for the source "sql", the protected table.
	Key  string
	Code api.Code
	// Reason is that of api.CodeTokenStale: superseded, released, reused or shared.
	Reason string
	// Kind classifies the writer: api.KindZombie has lost its lock.
	Kind api.RejectionKind
	// Source is the way by which the write arrived.
	Source string
	// OwnerID is the owner of the token's lease.
	OwnerID string
	// Principal sent the writes.
	Principal string
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
func (c *Client) Rejections(ctx context.Context, which RejectionsQuery) (api.Rejections, error) {
	query := map[string]string{
		"resource": which.Resource, "prefix": which.Prefix, "key": which.Key, "code": string(which.Code),
		"reason": which.Reason, "kind": string(which.Kind), "source": which.Source, "owner_id": which.OwnerID,
		"principal": which.Principal,
		"since":     timeOf(which.Since), "until": timeOf(which.Until),
		"limit": limitOf(which.Limit), "cursor": which.Cursor,
	}
	if which.LastSeen {
		query["sort"] = "last_seen"
	}
	return fetch[api.Rejections](ctx, c, lockclient.Call{Op: "list rejections", Path: "/v1/rejections", Query: query})
}

// Rejection returns a rejection group with its leases. It returns an error that is ErrNotFound if the group does not
// exist, or is on a name that the caller may not observe.
func (c *Client) Rejection(ctx context.Context, id int64) (api.RejectionDetail, error) {
	path := "/v1/rejections/" + strconv.FormatInt(id, 10)
	return fetch[api.RejectionDetail](ctx, c, lockclient.Call{Op: "get a rejection", Path: path})
}

// AllRejections returns the rejected writes that which selects, page after page from its Cursor on; its Limit is the
// size of a page. An error is the last element.
func (c *Client) AllRejections(ctx context.Context, which RejectionsQuery) iter.Seq2[api.Rejection, error] {
	return func(yield func(api.Rejection, error) bool) {
		for {
			page, err := c.Rejections(ctx, which)
			if err != nil {
				yield(api.Rejection{}, err)
				return
			}
			for _, rejection := range page.Rejections {
				if !yield(rejection, nil) {
					return
				}
			}
			if which.Cursor = page.NextCursor; which.Cursor == "" {
				return
			}
		}
	}
}

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
