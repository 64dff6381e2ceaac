package gateway

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) policyRoutes(router *mux.Router) {
	g.route(router, "/v1/policies/{prefix"+anyText, methods{
		"GET": g.answering(g.getPolicy), "PUT": g.putPolicy, "DELETE": g.deletePolicy,
	})
	g.route(router, "/v1/policies", methods{"GET": g.answering(g.listPolicies)})
}

func (g *Gateway) listPolicies(ctx context.Context, r *http.Request) (any, error) {
	if _, err := query(r); err != nil {
		return nil, err
	}
	policies, err := g.backend.Policies(ctx)
	return api.Policies{Policies: convert(policies, policyAnswer)}, err
}

func (g *Gateway) getPolicy(ctx context.Context, r *http.Request) (any, error) {
	prefix, err := policyPrefix(r)
	if err != nil {
		return nil, err
	}
	policy, err := g.backend.Policy(ctx, prefix)
	return policyAnswer(policy), err
}

func (g *Gateway) putPolicy(w http.ResponseWriter, r *http.Request) error {
	prefix, err := policyPrefix(r)
	if err != nil {
		return err
	}
	var body api.PolicyRequest
	if err := g.readJSON(w, r, &body); err != nil {
		return err
	}
	maxHold, err := milliseconds("max_hold_ms", body.MaxHoldMS, store.MaxHoldMin, store.MaxHoldMax)
	if err != nil {
		return err
	}
	policy := store.Policy{
		Prefix:         prefix,
		Rule:           store.Rule(cmp.Or(body.Rule, string(store.RuleStrict))),
		Authority:      store.Authority(cmp.Or(body.Authority, string(store.AuthorityBuiltin))),
		RequireLeaseID: body.RequireLeaseID, RequireLiveLease: body.RequireLiveLease, MaxHold: maxHold,
	}
	ctx, cancel := g.work(r)
	defer cancel()
	if err := g.backend.PutPolicy(ctx, policy); err != nil {
		return err
	}
	g.config.Logger.InfoContext(r.Context(), "policy set", "prefix", prefix, "rule", policy.Rule,
		"authority", policy.Authority, "require_lease_id", policy.RequireLeaseID,
		"require_live_lease", policy.RequireLiveLease, "max_hold_ms", policy.MaxHold.Milliseconds(),
		"address", g.address(r))
	return answerJSON(w, http.StatusOK, policyAnswer(policy))
}

func (g *Gateway) deletePolicy(w http.ResponseWriter, r *http.Request) error {
	prefix, err := policyPrefix(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	if err := g.backend.DeletePolicy(ctx, prefix); err != nil {
		return err
	}
	g.config.Logger.InfoContext(r.Context(), "policy deleted", "prefix", prefix, "address", g.address(r))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// policyPrefix reads the prefix of a policy: a name, or "" for every name.
func policyPrefix(r *http.Request) (string, error) {
	if _, err := query(r); err != nil {
		return "", err
	}
	if mux.Vars(r)["prefix"] == "" {
		return "", nil
	}
	name, err := pathName(r, "prefix")
	return string(name), err
}

func policyAnswer(policy store.Policy) api.Policy {
	return api.Policy{
		Prefix: policy.Prefix, Rule: string(policy.Rule), Authority: string(policy.Authority),
		RequireLeaseID: policy.RequireLeaseID, RequireLiveLease: policy.RequireLiveLease,
		MaxHoldMS: policy.MaxHold.Milliseconds(),
	}
}
