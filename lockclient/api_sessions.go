package lockclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/fencegate/fencegate/gateway/api"
)

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
