// Package admin has the calls of the HTTP API for people and tools: lists of locks and rejected writes, the overview,
// policies, fences, API keys and the audit log.
//
//	client, err := lockclient.New("http://a:8080", lockclient.WithTokenFile("/run/secrets/fencegate"))
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	for rejection, err := range admin.New(client).AllRejections(ctx, admin.RejectionsQuery{Prefix: "jobs/"}) {
//		…
//	}
//
// Errors, and what happens when a gateway fails, are those of [lockclient.API]. Lists may be out of date when they
// arrive: don't base a decision on them that no fence guards.
package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// Client makes the calls. It is safe for concurrent use, and is closed with the client that it was made of.
type Client struct {
	api *lockclient.API
}

// New makes a Client that sends its requests by client.
func New(client *lockclient.Client) *Client { return &Client{api: client.API()} }

// WhoAmI returns the principal of the client's credential, and what it may do.
func (c *Client) WhoAmI(ctx context.Context) (api.Principal, error) {
	return fetch[api.Principal](ctx, c, lockclient.Call{Op: "who am I", Path: "/v1/whoami"})
}

// Overview returns the state of the whole system: writes over the last while (1 min to 1 h; 0: the gateway's default),
// leases, the database, the gateways. If the database is unreachable, the overview says so, and there is no error.
func (c *Client) Overview(ctx context.Context, last time.Duration) (api.Overview, error) {
	query := map[string]string{}
	if last != 0 {
		query["range_ms"] = strconv.FormatInt(last.Milliseconds(), 10)
	}
	return fetch[api.Overview](ctx, c, lockclient.Call{Op: "get overview", Path: "/v1/overview", Query: query})
}

// Drain begins a drain of the client's gateway, or ends it: its clients move to others. The client must have one URL.
func (c *Client) Drain(ctx context.Context, draining bool) (api.Drain, error) {
	method := http.MethodPut
	if !draining {
		method = http.MethodDelete
	}
	return fetch[api.Drain](ctx, c, lockclient.Call{Op: "drain", Method: method, Path: "/v1/drain", Idempotent: true})
}

// DrainState returns whether the client's gateway drains, and what is open in it for which clients wait.
func (c *Client) DrainState(ctx context.Context) (api.Drain, error) {
	return fetch[api.Drain](ctx, c, lockclient.Call{Op: "read the drain", Path: "/v1/drain"})
}

// fetch sends a call and returns its answer.
func fetch[T any](ctx context.Context, c *Client, call lockclient.Call) (T, error) {
	var answer T
	if err := c.api.Call(ctx, call, &answer); err != nil {
		return *new(T), err
	}
	return answer, nil
}

// limitOf returns the text of a page's size, empty for the gateway's default.
func limitOf(size int) string {
	if size == 0 {
		return ""
	}
	return strconv.Itoa(size)
}

// timeOf returns the text of an instant, empty for the zero time.
func timeOf(instant time.Time) string {
	if instant.IsZero() {
		return ""
	}
	return instant.UTC().Format(time.RFC3339Nano)
}

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

// AuditQuery selects entries of the audit log. The zero value is the first page of all.
type AuditQuery struct {
	// Action is what was done, like "lease_broken".
	Action string
	// Principal did it.
	Principal string
	// Name is the exact name of the lock or resource, or the prefix of the policy.
	Name string
	// Prefix is that of the name; any text.
	Prefix string
	// Since leaves out the entries before it, and Until those at it and after it, by the database's clock. The zero time
	// leaves out nothing.
	Since, Until time.Time
	// Limit is the size of a page; 0: the gateway's default.
	Limit int
	// Cursor is the NextCursor of the page before.
	Cursor string
}

// Audit lists what administrators did, the newest first, a page at a time.
func (c *Client) Audit(ctx context.Context, which AuditQuery) (api.Audit, error) {
	query := map[string]string{
		"action": which.Action, "principal": which.Principal, "name": which.Name, "prefix": which.Prefix,
		"since": timeOf(which.Since), "until": timeOf(which.Until),
		"limit": limitOf(which.Limit), "cursor": which.Cursor,
	}
	return fetch[api.Audit](ctx, c, lockclient.Call{Op: "list the audit log", Path: "/v1/audit", Query: query})
}

// AuditSeals lists the seals of the audit log after one, the oldest first, with their entries, a page at a time. It needs
// the scope admin on all names.
func (c *Client) AuditSeals(ctx context.Context, after int64) (api.AuditSeals, error) {
	query := map[string]string{"after": strconv.FormatInt(after, 10)}
	return fetch[api.AuditSeals](ctx, c, lockclient.Call{Op: "read the seals of the audit log", Path: "/v1/audit/seals", Query: query})
}
