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
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
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
