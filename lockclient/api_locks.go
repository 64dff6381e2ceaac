package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Acquire acquires a lease on a lock. Once it has returned, no write with an older token can be committed on the name.
//
// It returns ErrLockHeld if another lease holds the lock, with the holder and the recommended pause in the problem;
// ErrDeadlock if the wait would never end; ErrLeaseLost if the lease that this RequestID was granted has ended. An
// ErrUnavailable with an unknown outcome may have granted a lease, which only the same RequestID returns.
func (a *API) Acquire(ctx context.Context, lock string, body api.AcquireRequest) (api.Lease, error) {
	call, err := lockCall("acquire", lock, body)
	if err != nil {
		return api.Lease{}, err
	}
	call.wait = time.Duration(max(0, body.WaitMS)) * time.Millisecond
	call.repeat = repeatAcquire
	call.idempotent = body.RequestID != nil
	return fetch(ctx, a, call, leaseLacks)
}

// Renew sets the lease's expiry to its TTL from now, by the database's clock. It returns ErrLeaseLost if the lease is
// not the lock's current one, or has expired.
func (a *API) Renew(ctx context.Context, lock string, body api.RenewRequest) (api.Lease, error) {
	call, err := lockCall("renew", lock, body)
	if err != nil {
		return api.Lease{}, err
	}
	call.idempotent = true
	return fetch(ctx, a, call, leaseLacks)
}

// Release ends the lease and closes the fence behind it. A release that is sent twice succeeds twice. It returns
// ErrLeaseLost if the lease was broken, or has expired and was replaced; ErrNotFound if the lock was never granted.
func (a *API) Release(ctx context.Context, lock string, body api.ReleaseRequest) error {
	call, err := lockCall("release", lock, body)
	if err != nil {
		return err
	}
	call.idempotent = true
	_, err = fetch(ctx, a, call, nothing[api.Released])
	return err
}

// Break ends all leases on the lock and closes the fence: the holder's writes are ErrTokenStale from then on. It is an
// administrator's call. It returns ErrNotFound if no token is admitted.
func (a *API) Break(ctx context.Context, lock string, body api.BreakRequest) (api.Broken, error) {
	call, err := lockCall("break", lock, body)
	if err != nil {
		return api.Broken{}, err
	}
	return fetch(ctx, a, call, nothing[api.Broken])
}

// Lock returns the state of a lock, without any lease_id. It may be out of date when it arrives: don't base a
// decision on it that no fence guards. It returns ErrNotFound if the lock was never granted.
func (a *API) Lock(ctx context.Context, lock string) (api.Lock, error) {
	op := "get lock " + lock
	path, err := namePath(op, lock)
	if err != nil {
		return api.Lock{}, err
	}
	return fetch(ctx, a, request{op: op, method: http.MethodGet, path: "/v1/locks/" + path}, nothing[api.Lock])
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
	query := pageQuery(which.Limit, which.Cursor)
	setIf(query, "prefix", which.Prefix)
	setIf(query, "state", which.State)
	setIf(query, "sort", which.Sort)
	setIf(query, "order", which.Order)
	call := request{op: "list locks", method: http.MethodGet, path: "/v1/locks", query: query}
	return fetch(ctx, a, call, nothing[api.Locks])
}

func lockCall(verb, lock string, body any) (request, error) {
	op := verb + " " + lock
	path, err := namePath(op, lock)
	if err != nil {
		return request{}, err
	}
	return actionCall(op, "/v1/locks/"+path+"/"+verb, body)
}

// actionCall makes a POST that may be repeated as it is.
func actionCall(op, path string, body any) (request, error) {
	text, err := jsonBody(op, body)
	if err != nil {
		return request{}, err
	}
	return request{
		op: op, method: http.MethodPost, path: path, body: text, repeat: repeatAsIs,
		header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

func leaseLacks(lease api.Lease) string {
	if lease.FencingToken < 1 || lease.LeaseID == "" {
		return "a lease without fencing_token or lease_id"
	}
	return ""
}

// setIf leaves out an empty value, so that the gateway's default applies.
func setIf(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}
