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

// Lock returns the state of a lock, without any lease_id. It may be out of date when it arrives: don't base a
// decision on it that no fence guards. It returns ErrNotFound if the lock was never granted.
func (a *API) Lock(ctx context.Context, lock string) (api.Lock, error) {
	return fetch[api.Lock](ctx, a, nameCall("get lock", http.MethodGet, "/v1/locks/", lock, ""), nil)
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
