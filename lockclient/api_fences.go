package lockclient

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
)

// Fence returns the state of a resource's fence, and its policy. It returns ErrNotFound if the name was never granted
// or written.
func (a *API) Fence(ctx context.Context, resource string) (api.Fence, error) {
	call := nameCall("get fence of", http.MethodGet, "/v1/resources/", resource, "/fence")
	return fetch[api.Fence](ctx, a, call, nil)
}

// SetFence sets the last accepted token and sequence of a fence whose tokens another lock service issues: after one
// that was too great, or when that service's numbers have started anew. It is an administrator's call. It returns
// ErrNotExternal for every other name. After an unknown outcome, look at the fence first: to send the same again could
// set back what was written meanwhile.
func (a *API) SetFence(ctx context.Context, resource string, body api.FenceRequest) (api.FenceSet, error) {
	call := nameCall("set fence of", http.MethodPut, "/v1/resources/", resource, "/fence").withJSON(body)
	call.repeat = "look at the fence first: writes may have raised it meanwhile"
	return fetch[api.FenceSet](ctx, a, call, nil)
}

// Policies lists all policies by prefix.
func (a *API) Policies(ctx context.Context) (api.Policies, error) {
	call := request{op: "list policies", method: http.MethodGet, path: "/v1/policies"}
	return fetch[api.Policies](ctx, a, call, nil)
}

// Policy returns the policy that was set on exactly this prefix; "" is the one for every name. It returns ErrNotFound
// if there is none.
func (a *API) Policy(ctx context.Context, prefix string) (api.Policy, error) {
	return fetch[api.Policy](ctx, a, policyCall("get policy of", http.MethodGet, prefix), nil)
}

// PutPolicy sets the policy of a name and all names below it; "" is every name. Absent fields of body get their
// defaults.
func (a *API) PutPolicy(ctx context.Context, prefix string, body api.PolicyRequest) (api.Policy, error) {
	return fetch[api.Policy](ctx, a, policyCall("put policy of", http.MethodPut, prefix).withJSON(body), nil)
}

// DeletePolicy removes a policy: that of the next shorter prefix applies from then on. It returns ErrNotFound if
// there is none on exactly this prefix.
func (a *API) DeletePolicy(ctx context.Context, prefix string) error {
	call := policyCall("delete policy of", http.MethodDelete, prefix)
	call.repeat = repeatAsIs
	return a.send(ctx, call)
}

func policyCall(verb, method, prefix string) request {
	if prefix == "" {
		return request{op: verb + " ", method: method, path: "/v1/policies/"}
	}
	return nameCall(verb, method, "/v1/policies/", prefix, "")
}
