package lockclient

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// Fence returns the state of a resource's fence, and its policy. It returns ErrNotFound if the name was never granted
// or written.
func (a *API) Fence(ctx context.Context, resource string) (api.Fence, error) {
	op := "get fence of " + resource
	path, err := namePath(op, resource)
	if err != nil {
		return api.Fence{}, err
	}
	call := request{op: op, method: http.MethodGet, path: "/v1/resources/" + path + "/fence"}
	return fetch(ctx, a, call, nothing[api.Fence])
}

// Policies lists all policies by prefix.
func (a *API) Policies(ctx context.Context) (api.Policies, error) {
	call := request{op: "list policies", method: http.MethodGet, path: "/v1/policies"}
	return fetch(ctx, a, call, nothing[api.Policies])
}

// Policy returns the policy that was set on exactly this prefix; "" is the one for every name. It returns ErrNotFound
// if there is none.
func (a *API) Policy(ctx context.Context, prefix string) (api.Policy, error) {
	call, err := policyCall("get policy of", http.MethodGet, prefix)
	if err != nil {
		return api.Policy{}, err
	}
	return fetch(ctx, a, call, nothing[api.Policy])
}

// PutPolicy sets the policy of a name and all names below it; "" is every name. Absent fields of body get their
// defaults.
func (a *API) PutPolicy(ctx context.Context, prefix string, body api.PolicyRequest) (api.Policy, error) {
	call, err := policyCall("put policy of", http.MethodPut, prefix)
	if err != nil {
		return api.Policy{}, err
	}
	call.repeat = repeatAsIs
	call.header = http.Header{"Content-Type": {"application/json"}}
	if call.body, err = jsonBody(call.op, body); err != nil {
		return api.Policy{}, err
	}
	return fetch(ctx, a, call, nothing[api.Policy])
}

// DeletePolicy removes a policy: that of the next shorter prefix applies from then on. It returns ErrNotFound if
// there is none on exactly this prefix.
func (a *API) DeletePolicy(ctx context.Context, prefix string) error {
	call, err := policyCall("delete policy of", http.MethodDelete, prefix)
	if err != nil {
		return err
	}
	call.repeat = repeatAsIs
	return a.send(ctx, call)
}

func policyCall(verb, method, prefix string) (request, error) {
	call := request{op: verb + " " + prefix, method: method, path: "/v1/policies/"}
	if prefix == "" {
		return call, nil
	}
	path, err := namePath(call.op, prefix)
	call.path += path
	return call, err
}

// Ready returns nil if the gateway can serve: its database is reachable and migrated. Otherwise it returns
// ErrUnavailable; the problem gives the reason.
func (a *API) Ready(ctx context.Context) error {
	call := request{op: "check readiness", method: http.MethodGet, path: "/readyz"}
	_, err := fetch(ctx, a, call, nothing[api.Health])
	return err
}

// Alive returns nil if the gateway's process runs, even if its database doesn't. Otherwise it returns ErrUnavailable.
func (a *API) Alive(ctx context.Context) error {
	call := request{op: "check health", method: http.MethodGet, path: "/healthz"}
	_, err := fetch(ctx, a, call, nothing[api.Health])
	return err
}
