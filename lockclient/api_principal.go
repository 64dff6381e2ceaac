package lockclient

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// WhoAmI returns the principal of the client's credential, and what it may do.
func (a *API) WhoAmI(ctx context.Context) (api.Principal, error) {
	call := request{op: "who am I", method: http.MethodGet, path: "/v1/whoami"}
	return fetch[api.Principal](ctx, a, call, nil)
}
