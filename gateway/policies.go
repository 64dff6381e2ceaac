package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) policyRoutes(router *mux.Router) {
	g.route(router, "/v1/policies/{prefix"+anyText, methods{
		"GET": answeringNamed(g, policyPrefix, g.getPolicy), "PUT": acting(g, policyPrefix, g.putPolicy),
		"DELETE": g.deletePolicy,
	})
	g.route(router, "/v1/policies", methods{"GET": g.answering(g.listPolicies)})
}

func (g *Gateway) listPolicies(ctx context.Context, r *http.Request) (any, error) {
	if _, err := query(r); err != nil {
		return nil, err
	}
	policies, err := g.backend.Policies(ctx)
	policies = slices.DeleteFunc(policies, func(policy store.Policy) bool {
		return !principalOf(ctx).May(access.Admin, policy.Prefix)
	})
	return api.Policies{Policies: convert(policies, policyAnswer)}, err
}

func (g *Gateway) getPolicy(ctx context.Context, prefix store.Name) (any, error) {
	policy, err := g.backend.Policy(ctx, string(prefix))
	return policyAnswer(policy), err
}

func (g *Gateway) putPolicy(ctx context.Context, a action[store.Name, api.PolicyRequest]) (any, error) {
	maxHold, err := milliseconds("max_hold_ms", a.body.MaxHoldMS, store.MaxHoldMin, store.MaxHoldMax)
	if err != nil {
		return nil, err
	}
	policy := store.Policy{
		Prefix:         string(a.key),
		Rule:           cmp.Or(store.Rule(a.body.Rule), store.RuleStrict),
		Authority:      cmp.Or(store.Authority(a.body.Authority), store.AuthorityBuiltin),
		RequireLeaseID: a.body.RequireLeaseID, RequireLiveLease: a.body.RequireLiveLease, MaxHold: maxHold,
		Leases: store.Provider(a.body.Leases), RequirePrincipalOwner: a.body.RequirePrincipalOwner,
	}
	if err := g.backend.PutPolicy(g.asActor(ctx, a.w, a.r), policy); err != nil {
		return nil, err
	}
	g.metrics.AdminAction("policy_set")
	g.config.Logger.InfoContext(ctx, "policy set", "prefix", policy.Prefix, "rule", policy.Rule,
		"authority", policy.Authority, "require_lease_id", policy.RequireLeaseID,
		"require_live_lease", policy.RequireLiveLease, "max_hold_ms", policy.MaxHold.Milliseconds(),
		"leases", policy.Leases, "require_principal_owner", policy.RequirePrincipalOwner,
		"by", a.w.principal.Name, "address", g.address(a.r))
	return policyAnswer(policy), nil
}

func (g *Gateway) deletePolicy(w *answerWriter, r *http.Request) error {
	prefix, err := policyPrefix(r)
	if err != nil {
		return err
	}
	if err := g.backend.DeletePolicy(g.asActor(g.work(r), w, r), string(prefix)); err != nil {
		return err
	}
	g.metrics.AdminAction("policy_deleted")
	g.config.Logger.InfoContext(r.Context(), "policy deleted", "prefix", prefix,
		"by", w.principal.Name, "address", g.address(r))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// policyPrefix reads the prefix of a policy: a name, or "" for every name.
func policyPrefix(r *http.Request) (store.Name, error) {
	if _, err := query(r); err != nil {
		return "", err
	}
	if mux.Vars(r)["prefix"] == "" {
		return "", nil
	}
	return prefixName(r)
}

func policyAnswer(policy store.Policy) api.Policy {
	return api.Policy{
		Prefix: policy.Prefix, Rule: string(policy.Rule), Authority: string(policy.Authority),
		RequireLeaseID: policy.RequireLeaseID, RequireLiveLease: policy.RequireLiveLease,
		MaxHoldMS: policy.MaxHold.Milliseconds(), Leases: string(policy.Leases),
		RequirePrincipalOwner: policy.RequirePrincipalOwner,
	}
}
