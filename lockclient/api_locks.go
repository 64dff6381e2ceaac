package lockclient

import (
	"context"
	"net/http"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Acquire acquires a lease on a lock. Once it has returned, no write with an older token can be committed on the name.
//
// It returns ErrLockHeld if another lease holds the lock, with the holder and the recommended pause in the problem;
// ErrDeadlock if the wait would never end; ErrLeaseLost if the lease that this RequestID was granted has ended. An
// ErrUnavailable with an unknown outcome may have granted a lease, which only the same RequestID returns.
func (a *API) Acquire(ctx context.Context, lock string, body api.AcquireRequest) (api.Lease, error) {
	call := lockCall("acquire", lock, body)
	call.wait = time.Duration(max(0, body.WaitMS)) * time.Millisecond
	call.repeat, call.idempotent = repeatAcquire, body.RequestID != nil
	return fetch(ctx, a, call, leaseLacks)
}

// Renew sets the lease's expiry to its TTL from now, by the database's clock. It returns ErrLeaseLost if the lease is
// not the lock's current one, or has expired.
func (a *API) Renew(ctx context.Context, lock string, body api.RenewRequest) (api.Lease, error) {
	call := lockCall("renew", lock, body)
	call.idempotent = true
	return fetch(ctx, a, call, leaseLacks)
}

// Release ends the lease and closes the fence behind it. A release that is sent twice succeeds twice. It returns
// ErrLeaseLost if the lease was broken, or has expired and was replaced; ErrNotFound if the lock was never granted.
func (a *API) Release(ctx context.Context, lock string, body api.ReleaseRequest) error {
	call := lockCall("release", lock, body)
	call.idempotent = true
	_, err := fetch[api.Released](ctx, a, call, nil)
	return err
}

// Break ends all leases on the lock and closes the fence: the holder's writes are ErrTokenStale from then on. It is an
// administrator's call. It returns ErrNotFound if no token is admitted.
func (a *API) Break(ctx context.Context, lock string, body api.BreakRequest) (api.Broken, error) {
	return fetch[api.Broken](ctx, a, lockCall("break", lock, body), nil)
}

// Lock returns the state of a lock, without any lease_id. It may be out of date when it arrives: don't base a
// decision on it that no fence guards. It returns ErrNotFound if the lock was never granted.
func (a *API) Lock(ctx context.Context, lock string) (api.Lock, error) {
	return fetch[api.Lock](ctx, a, nameCall("get lock", http.MethodGet, "/v1/locks/", lock, ""), nil)
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
func (a *API) Locks(ctx context.Context, which LocksQuery) (api.Locks, error) {
	call := request{op: "list locks", method: http.MethodGet, path: "/v1/locks"}
	call.query = pageQuery(which.Limit, which.Cursor, map[string]string{
		"prefix": which.Prefix, "state": which.State, "sort": which.Sort, "order": which.Order,
	})
	return fetch[api.Locks](ctx, a, call, nil)
}

func lockCall(verb, lock string, body any) request {
	return nameCall(verb, http.MethodPost, "/v1/locks/", lock, "/"+verb).withJSON(body)
}

func leaseLacks(lease api.Lease) string {
	if lease.FencingToken < 1 || lease.LeaseID == "" {
		return "a lease without fencing_token or lease_id"
	}
	return ""
}
