package lockclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
)

// Overview tells how all of it is: writes over the last while (1 min to 24 h; 0: the gateway's default), leases, the
// database, the gateways. Where the database is away, it says so and is no error.
func (a *API) Overview(ctx context.Context, last time.Duration) (api.Overview, error) {
	query := url.Values{}
	if last != 0 {
		query.Set("range_ms", strconv.FormatInt(last.Milliseconds(), 10))
	}
	return fetch(ctx, a, request{op: "get overview", method: http.MethodGet, path: "/v1/overview", query: query}, nothing[api.Overview])
}
