// Package admin is the part of the API that administrators use: policies, API keys, the audit log, protected tables.
package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// Service is what administration reads and changes. Once a method has returned, this gateway decides by the change.
type Service interface {
	PutPolicy(context.Context, store.Policy) error
	DeletePolicy(ctx context.Context, prefix string) error
	CreateKey(context.Context, store.KeyRequest) (store.Key, error)
	RotateKey(ctx context.Context, id string, request store.KeyRequest, overlap time.Duration) (store.Key, error)
	RevokeKey(ctx context.Context, id string) (store.Key, error)

	Policies(context.Context) ([]store.Policy, error)
	Policy(ctx context.Context, prefix string) (store.Policy, error)
	Keys(context.Context, store.KeyQuery) ([]store.Key, error)
	Audit(context.Context, store.AuditQuery) ([]store.AuditEntry, error)
	AuditSeals(ctx context.Context, after int64) (seals []store.AuditSeal, unsealed int64, err error)
	Tables(context.Context, store.TableQuery) ([]store.ProtectedTable, error)
	SQLRoles(context.Context) ([]store.SQLRole, error)
}

// Endpoints are what administrators use: policies, API keys, the audit log and the protected tables.
type Endpoints struct {
	*endpoint.Server

	service Service
}

// New returns the endpoints of administrators.
func New(server *endpoint.Server, service Service) *Endpoints {
	return &Endpoints{server, service}
}

// Routes adds the routes of policies, keys, the audit log and tables.
func (e *Endpoints) Routes(router *mux.Router) {
	e.Route(router, "/v1/tables", endpoint.Methods{"GET": e.WithoutBody(e.listTables)})
	e.Route(router, "/v1/sql-roles", endpoint.Methods{"GET": e.WithoutBody(e.listSQLRoles)})
	e.Route(router, "/v1/audit/seals", endpoint.Methods{"GET": e.WithoutBody(e.listSeals)})
	e.Route(router, "/v1/audit", endpoint.Methods{"GET": e.WithoutBody(e.listAudit)})
	e.keyRoutes(router)
	e.Route(router, "/v1/policies/{prefix"+endpoint.AnyText, endpoint.Methods{
		"GET":    endpoint.WithoutBodyNamed(e.Server, policyPrefix, e.getPolicy),
		"PUT":    endpoint.WithBody(e.Server, policyPrefix, e.putPolicy),
		"DELETE": e.deletePolicy,
	})
	e.Route(router, "/v1/policies", endpoint.Methods{"GET": e.WithoutBody(e.listPolicies)})
}

func (e *Endpoints) listPolicies(ctx context.Context, r *http.Request) (any, error) {
	if _, err := endpoint.Query(r); err != nil {
		return nil, err
	}
	policies, err := e.service.Policies(ctx)
	policies = slices.DeleteFunc(policies, func(policy store.Policy) bool {
		return !endpoint.PrincipalOf(ctx).May(access.Admin, policy.Prefix)
	})
	return api.Policies{Policies: endpoint.Convert(policies, endpoint.PolicyAnswer)}, err
}

func (e *Endpoints) getPolicy(ctx context.Context, prefix store.Name) (any, error) {
	policy, err := e.service.Policy(ctx, string(prefix))
	return endpoint.PolicyAnswer(policy), err
}

func (e *Endpoints) putPolicy(ctx context.Context, a endpoint.Action[store.Name, api.PolicyRequest]) (any, error) {
	maxHold, err := endpoint.Milliseconds("max_hold_ms", a.Body.MaxHoldMS, store.MaxHoldMin, store.MaxHoldMax)
	if err != nil {
		return nil, err
	}
	policy := store.Policy{
		Prefix:         string(a.Key),
		Rule:           cmp.Or(store.Rule(a.Body.Rule), store.RuleStrict),
		Authority:      cmp.Or(store.Authority(a.Body.Authority), store.AuthorityBuiltin),
		RequireLeaseID: a.Body.RequireLeaseID, RequireLiveLease: a.Body.RequireLiveLease, MaxHold: maxHold,
		Leases: store.Provider(a.Body.Leases), RequirePrincipalOwner: a.Body.RequirePrincipalOwner,
	}
	if err := e.service.PutPolicy(e.AsActor(ctx, a.W, a.R), policy); err != nil {
		return nil, err
	}
	e.Metrics.AdminAction("policy_set")
	e.Logger.InfoContext(ctx, "policy set", "prefix", policy.Prefix, "rule", policy.Rule,
		"authority", policy.Authority, "require_lease_id", policy.RequireLeaseID,
		"require_live_lease", policy.RequireLiveLease, "max_hold_ms", policy.MaxHold.Milliseconds(),
		"leases", policy.Leases, "require_principal_owner", policy.RequirePrincipalOwner,
		"by", a.W.Principal.Name, "address", e.Address(a.R))
	return endpoint.PolicyAnswer(policy), nil
}

func (e *Endpoints) deletePolicy(w *endpoint.Answer, r *http.Request) error {
	prefix, err := policyPrefix(r)
	if err != nil {
		return err
	}
	if err := e.service.DeletePolicy(e.AsActor(e.Work(r), w, r), string(prefix)); err != nil {
		return err
	}
	e.Metrics.AdminAction("policy_deleted")
	e.Logger.InfoContext(r.Context(), "policy deleted", "prefix", prefix,
		"by", w.Principal.Name, "address", e.Address(r))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// policyPrefix reads the prefix of a policy: a name, or "" for every name.
func policyPrefix(r *http.Request) (store.Name, error) {
	if _, err := endpoint.Query(r); err != nil {
		return "", err
	}
	if mux.Vars(r)["prefix"] == "" {
		return "", nil
	}
	return endpoint.PrefixName(r)
}
