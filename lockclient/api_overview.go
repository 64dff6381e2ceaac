package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Overview returns the state of the whole system: writes over the last while (1 min to 24 h; 0: the gateway's default),
// leases, the database, the gateways. If the database is unreachable, the overview says so, and there is no error.
func (a *API) Overview(ctx context.Context, last time.Duration) (api.Overview, error) {
	query := url.Values{}
	if last != 0 {
		query.Set("range_ms", strconv.FormatInt(last.Milliseconds(), 10))
	}
	call := request{op: "get overview", method: http.MethodGet, path: "/v1/overview", query: query}
	return fetch[api.Overview](ctx, a, call, nil)
}

// Ready returns nil if the gateway can serve: its database is reachable and migrated. Otherwise it returns
// ErrUnavailable; the problem gives the reason.
func (a *API) Ready(ctx context.Context) error {
	call := request{op: "check readiness", method: http.MethodGet, path: "/readyz"}
	_, err := fetch[api.Health](ctx, a, call, nil)
	return err
}

// Alive returns nil if the gateway's process runs, even if its database doesn't. Otherwise it returns ErrUnavailable.
func (a *API) Alive(ctx context.Context) error {
	call := request{op: "check health", method: http.MethodGet, path: "/healthz"}
	_, err := fetch[api.Health](ctx, a, call, nil)
	return err
}
