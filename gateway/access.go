package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/access"
)

// accessRules say for every route who may call it. A route without a rule can't be added.
//
// No handler runs, no body is read and nothing is sent to the database before a request has passed its rule. So who may
// not see a name gets the same answer, in the same time, whether it exists or not.
var accessRules = map[string]accessRule{
	"POST /v1/locks/{lock}/acquire":                 onName("lock", access.Lock),
	"POST /v1/locks/{lock}/renew":                   onName("lock", access.Lock),
	"POST /v1/locks/{lock}/release":                 onName("lock", access.Lock),
	"POST /v1/locks/{lock}/break":                   onName("lock", access.Admin),
	"GET /v1/locks/{lock}/watch":                    onName("lock", access.Observe),
	"GET /v1/locks/{lock}":                          onName("lock", access.Lock, access.Observe),
	"GET /v1/locks":                                 onEach(access.Observe),
	"GET /v1/leases":                                onEach(access.Observe),
	"GET /v1/waits":                                 onEach(access.Observe),
	"POST /v1/sessions":                             onEach(access.Lock),
	"GET /v1/sessions":                              onAll(access.Observe),
	"POST /v1/sessions/{session}/keepalive":         onEach(access.Lock),
	"GET /v1/sessions/{session}":                    onEach(access.Lock),
	"DELETE /v1/sessions/{session}":                 onEach(access.Lock),
	"POST /v1/elections/{election}/campaign":        onName("election", access.Lock),
	"POST /v1/elections/{election}/resign":          onName("election", access.Lock),
	"GET /v1/elections/{election}/observe":          onName("election", access.Lock, access.Observe),
	"GET /v1/elections/{election}":                  onName("election", access.Lock, access.Observe),
	"GET /v1/elections":                             onEach(access.Observe),
	"PUT /v1/resources/{resource}/records/{key}":    onName("resource", access.Write),
	"DELETE /v1/resources/{resource}/records/{key}": onName("resource", access.Write),
	"GET /v1/resources/{resource}/records/{key}":    onName("resource", access.Read),
	"HEAD /v1/resources/{resource}/records/{key}":   onName("resource", access.Read),
	"GET /v1/resources/{resource}/records":          onName("resource", access.Read),
	"GET /v1/resources/{resource}/fence":            onName("resource", access.Read),
	"PUT /v1/resources/{resource}/fence":            onName("resource", access.Admin),
	"POST /v1/transactions":                         onEach(access.Write),
	"POST /v1/writes":                               onEach(access.Write),
	"GET /v1/terraform/{state}":                     onState(access.Read),
	"POST /v1/terraform/{state}":                    onState(access.Write),
	"DELETE /v1/terraform/{state}":                  onState(access.Write),
	"LOCK /v1/terraform/{state}":                    onState(access.Lock),
	"UNLOCK /v1/terraform/{state}":                  onState(access.Lock, access.Admin),
	"POST /v1/terraform/{state}/lock":               onState(access.Lock),
	"POST /v1/terraform/{state}/unlock":             onState(access.Lock, access.Admin),
	"GET /v1/terraform/{state}/history":             onState(access.Read),
	"GET /v1/terraform/{state}/history/{version}":   onState(access.Read),
	"GET /v1/policies/{prefix}":                     onName("prefix", access.Admin),
	"PUT /v1/policies/{prefix}":                     onName("prefix", access.Admin),
	"DELETE /v1/policies/{prefix}":                  onName("prefix", access.Admin),
	"GET /v1/policies":                              onEach(access.Admin),
	"GET /v1/tables":                                onAll(access.Observe),
	"GET /v1/rejections":                            onEach(access.Observe),
	"GET /v1/rejections/summary":                    onEach(access.Observe),
	"GET /v1/rejections/{id}":                       onEach(access.Observe),
	"GET /v1/rejections/stream":                     onEach(access.Observe),
	"GET /v1/overview":                              onAll(access.Observe),
	"GET /v1/overview/stream":                       onAll(access.Observe),
	"GET /v1/keys":                                  onAll(access.Admin),
	"POST /v1/keys":                                 onAll(access.Admin),
	"DELETE /v1/keys/{id}":                          onAll(access.Admin),
	"POST /v1/keys/{id}/rotate":                     onAll(access.Admin),
	"GET /v1/audit":                                 onEach(access.Admin),
	"GET /v1/whoami":                                anyPrincipal,
	"GET /v1/sign-in":                               public,
	"GET /v1/sign-in/{issuer}/start":                public,
	"GET /v1/sign-in/{issuer}/callback":             public,
	"POST /v1/sign-in":                              public,
	"DELETE /v1/sign-in":                            public,
	"GET /metrics":                                  onAll(access.Observe),
	"GET /healthz":                                  public,
	"GET /readyz":                                   public,
	"GET /openapi.yaml":                             public,
	"GET /":                                         public,
	"HEAD /":                                        public,
	"GET /ui/{file}":                                public,
	"HEAD /ui/{file}":                               public,
}

// accessRule says who may call a route: a principal with one of the scopes.
type accessRule struct {
	scopes   []access.Scope // none: see public and anyPrincipal
	names    ruleNames
	variable string // of the path, with the name
	refusal  string // the detail of the answer to others
	prefix   string // of the name, before the variable
	basic    bool   // the credential may be the password of Authorization: Basic
}

// ruleNames says on which names the scope is needed.
type ruleNames int

const (
	nameInPath ruleNames = iota // on the one that the path has
	eachName                    // on some name; the handler judges each that the request has, and shows no other
	everyName                   // on all names
	noScope                     // none is needed: a credential is enough
)

// public is the rule of routes that have nothing to hide, anyPrincipal that of routes that need a credential only.
var public, anyPrincipal = accessRule{}, accessRule{names: noScope}

func (a *accessRule) isPublic() bool { return len(a.scopes) == 0 && a.names != noScope }

func onName(variable string, scopes ...access.Scope) accessRule {
	return accessRule{
		scopes: scopes, names: nameInPath, variable: variable,
		refusal: "This needs the scope " + anyOf(scopes) + " on this name.",
	}
}

// onState is onName for a state of Terraform, which sends its credential as a password.
func onState(scopes ...access.Scope) accessRule {
	rule := onName("state", scopes...)
	rule.prefix, rule.basic = statesPrefix, true
	return rule
}

func onEach(scopes ...access.Scope) accessRule {
	return accessRule{
		scopes: scopes, names: eachName, refusal: "This needs the scope " + anyOf(scopes) + " on the name.",
	}
}

func onAll(scopes ...access.Scope) accessRule {
	return accessRule{
		scopes: scopes, names: everyName, refusal: "This needs the scope " + anyOf(scopes) + " on all names.",
	}
}

func anyOf(scopes []access.Scope) string {
	words := make([]string, len(scopes))
	for i, scope := range scopes {
		words[i] = string(scope)
	}
	return strings.Join(words, " or ")
}

// ruleOf returns the rule of a route. It panics if there is none.
func ruleOf(method, template string) accessRule {
	rule, ok := accessRules[method+" "+template]
	if !ok {
		panic("gateway: no access rule for " + method + " " + template)
	}
	return rule
}

// authorize finds the principal of a request, counts it, and judges it by the rule of the route. Public routes are not
// counted: they cost less than a refusal, and load balancers need them. (Signing in by an issuer counts its own.)
func (g *Gateway) authorize(w *answerWriter, r *http.Request, rule *accessRule) error {
	w.principal = access.Anyone
	if r.ProtoMajor == 1 || g.config.Auth == nil && !rule.isPublic() {
		g.connections.know(connectionOf(r))
	}
	if rule.isPublic() {
		return nil
	}
	if err := g.admitBrowser(r); err != nil {
		return err
	}
	if g.config.Auth == nil {
		return g.count(w, r)
	}
	if _, password, ok := r.BasicAuth(); ok && rule.basic {
		r.Header.Set("Authorization", bearerScheme+password)
	}
	principal, reason := g.config.Auth.Authenticate(r)
	if reason != auth.Accepted {
		w.principal = nil
		return g.countFailure(r, g.unauthenticated(reason))
	}
	w.principal = principal
	g.connections.know(connectionOf(r))
	if err := g.count(w, r); err != nil {
		return err
	}
	if !rule.allows(principal, r) {
		return rule.forbidden()
	}
	return nil
}

// stillAccepted returns the answer to a request that has lasted for a while, if its credential has ended; otherwise
// nil.
func (g *Gateway) stillAccepted(r *http.Request) error {
	if g.config.Auth == nil {
		return nil
	}
	if _, reason := g.config.Auth.Authenticate(r); reason != auth.Accepted {
		return g.unauthenticated(reason)
	}
	return nil
}

func (a *accessRule) allows(principal *access.Principal, r *http.Request) bool {
	if a.names == noScope {
		return true
	}
	for _, scope := range a.scopes {
		allowed := false
		switch a.names {
		case nameInPath:
			allowed = principal.May(scope, a.name(r))
		case eachName:
			allowed = principal.MayAny(scope)
		case everyName:
			allowed = principal.MayAll(scope)
		case noScope:
		}
		if allowed {
			return true
		}
	}
	return false
}

// name is the name that the path of a request has.
func (a *accessRule) name(r *http.Request) string { return a.prefix + pathVariable(r, a.variable) }

// forbidden is the same answer for every name, whether it exists or not.
func (a *accessRule) forbidden() *api.Problem {
	return problem(http.StatusForbidden, api.CodeForbidden, a.refusal)
}

// unauthenticated is the answer without a principal. It does not say whether a key was revoked, or never existed.
func (g *Gateway) unauthenticated(reason auth.Reason) *api.Problem {
	g.metrics.Unauthenticated(reason)
	if reason == auth.NotReady {
		return keysNotRead()
	}
	if reason == auth.Missing {
		return problem(http.StatusUnauthorized, api.CodeUnauthenticated,
			"Send a credential: Authorization: Bearer and an API key or a token, or a client certificate.")
	}
	return problem(http.StatusUnauthorized, api.CodeUnauthenticated,
		"The credential is malformed, unknown, expired or revoked.")
}

// recorded is the name of a principal beside what it does; "" for everybody at a gateway that asks for no credential.
func recorded(principal *access.Principal) string {
	if principal.Kind == access.Anonymous {
		return ""
	}
	return principal.Name
}

func keysNotRead() *api.Problem {
	answer := busy("The gateway has not read its keys yet, or those of the token's issuer. Try again, or another gateway.")
	answer.Reason = "keys_not_read"
	return answer
}

type principalKey struct{}

// withPrincipal passes the principal on to what has the context, and not the answerWriter.
func withPrincipal(ctx context.Context, principal *access.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// principalOf returns the principal of a request by the context that answering has made.
func principalOf(ctx context.Context) *access.Principal {
	return ctx.Value(principalKey{}).(*access.Principal) //nolint:forcetypeassert // answering has set it
}
