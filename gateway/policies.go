package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func (g *Gateway) getFence(ctx context.Context, resource store.Name) (any, error) {
	fence, err := g.backend.Fence(ctx, resource)
	return fenceAnswer(fence), err
}

func fenceAnswer(fence store.Fence) api.Fence {
	return api.Fence{
		Resource: string(fence.Resource), GrantedToken: fence.GrantedToken, Open: fence.Open,
		LastToken: fence.LastToken, LastSequence: fence.LastSequence, Policy: policyAnswer(fence.Policy),
	}
}

func (g *Gateway) listPolicies(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	policies, err := g.backend.Policies(ctx)
	if err != nil {
		return err
	}
	answer := api.Policies{Policies: make([]api.Policy, len(policies))}
	for i, policy := range policies {
		answer.Policies[i] = policyAnswer(policy)
	}
	return answerJSON(w, http.StatusOK, answer)
}

func (g *Gateway) getPolicy(w http.ResponseWriter, r *http.Request) error {
	prefix, err := policyPrefix(r)
	if err != nil {
		return err
	}
	ctx, cancel := g.work(r)
	defer cancel()
	policy, err := g.backend.Policy(ctx, prefix)
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, policyAnswer(policy))
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
	maxHold, err := maxHold(body.MaxHoldMS)
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
	g.config.Logger.InfoContext(r.Context(), "policy set", "prefix", prefix, "rule", policy.Rule, "authority", policy.Authority,
		"require_lease_id", policy.RequireLeaseID, "require_live_lease", policy.RequireLiveLease,
		"max_hold_ms", policy.MaxHold.Milliseconds(), "address", g.address(r))
	return answerJSON(w, http.StatusOK, policyAnswer(policy))
}

// maxHold reads a max_hold_ms; absent it is 0.
func maxHold(ms *int64) (time.Duration, error) {
	if ms == nil {
		return 0, nil
	}
	if *ms < store.MaxHoldMin.Milliseconds() || *ms > store.MaxHoldMax.Milliseconds() {
		return 0, invalid("max_hold_ms is %d, it must be %d to %d, or absent for no limit.",
			*ms, store.MaxHoldMin.Milliseconds(), store.MaxHoldMax.Milliseconds())
	}
	return time.Duration(*ms) * time.Millisecond, nil
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

// policyPrefix reads the prefix of a policy: a name, or nothing, which is every name.
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
		RequireLeaseID: policy.RequireLeaseID, RequireLiveLease: policy.RequireLiveLease, MaxHoldMS: policy.MaxHold.Milliseconds(),
	}
}
