package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
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

// CreateSession creates a session. It has no request_id: an ErrUnavailable with an unknown outcome may have created a
// session, which holds nothing and expires.
func (a *API) CreateSession(ctx context.Context, body api.SessionRequest) (api.Session, error) {
	call := request{op: "create session", method: http.MethodPost, path: "/v1/sessions"}
	return fetch(ctx, a, call.withJSON(body), sessionLacks)
}

// KeepSessionAlive sets the expiry of the session, and so of all its leases, to its TTL from now, by the database's
// clock. It returns ErrLeaseLost if the session has ended or expired, ErrNotFound if there is no such session.
func (a *API) KeepSessionAlive(ctx context.Context, sessionID string) (api.Session, error) {
	call := sessionCall("keep session alive", http.MethodPost, sessionID)
	call.path += "/keepalive"
	call.repeat, call.idempotent = repeatAsIs, true
	return fetch(ctx, a, call, sessionLacks)
}

// Session returns the state of a session. It returns ErrNotFound if there is no such session.
func (a *API) Session(ctx context.Context, sessionID string) (api.Session, error) {
	return fetch(ctx, a, sessionCall("get session", http.MethodGet, sessionID), sessionLacks)
}

// EndSession ends a session: its leases are released, and its waiters leave the queue. It may be sent twice. It returns
// ErrNotFound if there is no such session.
func (a *API) EndSession(ctx context.Context, sessionID string) (api.SessionEnded, error) {
	call := sessionCall("end session", http.MethodDelete, sessionID)
	call.repeat, call.idempotent = repeatAsIs, true
	return fetch[api.SessionEnded](ctx, a, call, nil)
}

// sessionCall keeps the session_id, a secret, out of error texts.
func sessionCall(op, method, sessionID string) request {
	call := request{op: op, method: method, path: "/v1/sessions/" + url.PathEscape(sessionID)}
	if sessionID == "" || sessionID == "." || sessionID == ".." {
		call.err = refused(op, api.CodeInvalidRequest, "a session_id is what the session was answered with")
	}
	return call
}

func sessionLacks(session api.Session) string {
	if session.SessionID == "" || session.TTLMS < 1 {
		return "a session without session_id or ttl_ms"
	}
	return ""
}
