package admin

import (
	"context"
	"net/http"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/lockclient"
)

// Fence returns the state of a resource's fence, and its policy. It returns ErrNotFound if the name was never granted
// or written.
func (c *Client) Fence(ctx context.Context, resource string) (api.Fence, error) {
	return fetch[api.Fence](ctx, c, lockclient.Call{
		Op: "get fence of", Path: "/v1/resources/{name}/fence", Name: resource,
	})
}

// SetFence sets the last accepted token and sequence of a fence whose tokens another lock service issues: after one
// that was too great, or when that service's numbers have started anew. It returns ErrNotExternal for every other name.
// After an unknown outcome, look at the fence first: to send the same again could set back what was written meanwhile.
func (c *Client) SetFence(ctx context.Context, resource string, body api.FenceRequest) (api.FenceSet, error) {
	return fetch[api.FenceSet](ctx, c, lockclient.Call{
		Op: "set fence of", Method: http.MethodPut, Path: "/v1/resources/{name}/fence", Name: resource, Body: body,
		Repeat: "look at the fence first: writes may have raised it meanwhile",
	})
}

// Policies lists all policies by prefix.
func (c *Client) Policies(ctx context.Context) (api.Policies, error) {
	return fetch[api.Policies](ctx, c, lockclient.Call{Op: "list policies", Path: "/v1/policies"})
}

// Policy returns the policy that was set on exactly this prefix; "" is the one for every name. It returns ErrNotFound
// if there is none.
func (c *Client) Policy(ctx context.Context, prefix string) (api.Policy, error) {
	return fetch[api.Policy](ctx, c, policyCall("get policy of", http.MethodGet, prefix))
}

// PutPolicy sets the policy of a name and all names below it; "" is every name. Absent fields of body get their
// defaults.
func (c *Client) PutPolicy(ctx context.Context, prefix string, body api.PolicyRequest) (api.Policy, error) {
	call := policyCall("put policy of", http.MethodPut, prefix)
	call.Body = body
	return fetch[api.Policy](ctx, c, call)
}

// DeletePolicy removes a policy: that of the next shorter prefix applies from then on. It returns ErrNotFound if
// there is none on exactly this prefix.
func (c *Client) DeletePolicy(ctx context.Context, prefix string) error {
	return c.api.Call(ctx, policyCall("delete policy of", http.MethodDelete, prefix), nil)
}

func policyCall(op, method, prefix string) lockclient.Call {
	if prefix == "" {
		return lockclient.Call{Op: op + " every name", Method: method, Path: "/v1/policies/"}
	}
	return lockclient.Call{Op: op, Method: method, Path: "/v1/policies/{name}", Name: prefix}
}
