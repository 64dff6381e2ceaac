package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// KeysQuery selects API keys. The zero value is the first page.
type KeysQuery struct {
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Keys lists API keys, the newest first.
func (c *Client) Keys(ctx context.Context, which KeysQuery) (api.Keys, error) {
	return fetch[api.Keys](ctx, c, lockclient.Call{
		Op: "list keys", Path: "/v1/keys", Query: map[string]string{"limit": limitOf(which.Limit), "cursor": which.Cursor},
	})
}

// CreateKey creates an API key. Only its answer has the key. After an unknown outcome there may be a key that nobody
// has: Keys shows it, and RevokeKey ends it.
func (c *Client) CreateKey(ctx context.Context, body api.KeyRequest) (api.NewKey, error) {
	return c.makeKey(ctx, lockclient.Call{Op: "create key", Method: http.MethodPost, Path: "/v1/keys", Body: body})
}

// RotateKey creates a key with the principal and the grants of another one, which expires after the overlap. See
// CreateKey for an unknown outcome. It returns ErrNotFound if that key is not live.
func (c *Client) RotateKey(ctx context.Context, id string, body api.RotateRequest) (api.NewKey, error) {
	call, err := keyCall("rotate key", http.MethodPost, id)
	if err != nil {
		return api.NewKey{}, err
	}
	call.Path += "/rotate"
	call.Body = body
	return c.makeKey(ctx, call)
}

func (c *Client) makeKey(ctx context.Context, call lockclient.Call) (api.NewKey, error) {
	var key api.NewKey
	call.Repeat = "look for a new key that nobody has, and revoke it"
	call.Check = func() string {
		if key.Secret == "" {
			return "a key without the key itself"
		}
		return ""
	}
	if err := c.api.Call(ctx, call, &key); err != nil {
		return api.NewKey{}, err
	}
	return key, nil
}

// RevokeKey ends an API key. It may be sent twice. It returns ErrNotFound if there is no such key.
func (c *Client) RevokeKey(ctx context.Context, id string) (api.Key, error) {
	call, err := keyCall("revoke key", http.MethodDelete, id)
	if err != nil {
		return api.Key{}, err
	}
	call.Idempotent = true
	return fetch[api.Key](ctx, c, call)
}

// keyCall refuses an id that would arrive as another path.
func keyCall(op, method, id string) (lockclient.Call, error) {
	if id == "" || id == "." || id == ".." {
		return lockclient.Call{}, &lockclient.Error{Op: op, Problem: &api.Problem{
			Type: "about:blank", Title: "Not sent", Status: http.StatusBadRequest, Code: api.CodeInvalidRequest,
			Detail: "the id of a key has 10 letters and digits",
		}}
	}
	return lockclient.Call{Op: op + " " + id, Method: method, Path: "/v1/keys/" + url.PathEscape(id)}, nil
}
