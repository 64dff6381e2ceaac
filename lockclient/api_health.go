package lockclient

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

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
