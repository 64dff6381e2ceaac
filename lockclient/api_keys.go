package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fencegate/fencegate/gateway/api"
)

// KeysQuery selects API keys. The zero value is the first page.
type KeysQuery struct {
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Keys lists API keys, the newest first.
func (a *API) Keys(ctx context.Context, query KeysQuery) (api.Keys, error) {
	call := request{op: "list keys", method: http.MethodGet, path: "/v1/keys", query: url.Values{}}
	if query.Limit != 0 {
		call.query.Set("limit", strconv.Itoa(query.Limit))
	}
	if query.Cursor != "" {
		call.query.Set("cursor", query.Cursor)
	}
	return fetch[api.Keys](ctx, a, call, nil)
}

// CreateKey creates an API key. Only its answer has the key. After an unknown outcome there may be a key that nobody
// has: Keys shows it, and RevokeKey ends it.
func (a *API) CreateKey(ctx context.Context, body api.KeyRequest) (api.NewKey, error) {
	return a.makeKey(ctx, request{op: "create key", method: http.MethodPost, path: "/v1/keys"}.withJSON(body))
}

// RotateKey creates a key with the principal and the grants of another one, which expires after the overlap. See
// CreateKey for an unknown outcome. It returns ErrNotFound if that key is not live.
func (a *API) RotateKey(ctx context.Context, id string, body api.RotateRequest) (api.NewKey, error) {
	call := keyCall("rotate key", http.MethodPost, id)
	call.path += "/rotate"
	return a.makeKey(ctx, call.withJSON(body))
}

func (a *API) makeKey(ctx context.Context, call request) (api.NewKey, error) {
	call.repeat = "look for a new key that nobody has, and revoke it"
	return fetch(ctx, a, call, func(key api.NewKey) string {
		if key.Secret == "" {
			return "a key without the key itself"
		}
		return ""
	})
}

// RevokeKey ends an API key. It may be sent twice. It returns ErrNotFound if there is no such key.
func (a *API) RevokeKey(ctx context.Context, id string) (api.Key, error) {
	call := keyCall("revoke key", http.MethodDelete, id)
	call.repeat, call.idempotent = repeatAsIs, true
	return fetch[api.Key](ctx, a, call, nil)
}

func keyCall(verb, method, id string) request {
	call := request{op: verb + " " + id, method: method, path: "/v1/keys/" + url.PathEscape(id)}
	if id == "" || id == "." || id == ".." {
		call.err = refused(verb, api.CodeInvalidRequest, "the id of a key has 10 letters and digits")
	}
	return call
}
