package endpoint

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

// AccessRule says who may call a route: a principal with one of the scopes.
type AccessRule struct {
	Scopes   []access.Scope // none: see Public and AnyPrincipal
	Names    RuleNames
	Variable string // of the path, with the name
	refusal  string // the detail of the answer to others
	Prefix   string // of the name, before the variable
	basic    bool   // the credential may be the password of Authorization: Basic
	changes  bool   // it changes what the database has
}

// RuleNames says on which names the scope is needed.
type RuleNames int

const (
	// NameInPath requires the scope on the name in the path.
	NameInPath RuleNames = iota
	// EachName requires the scope on some name; the handler judges each name of the request, and shows no other.
	EachName
	// EveryName requires the scope on all names.
	EveryName
	// NoScope requires no scope: a credential is enough.
	NoScope
)

// Public is the rule of routes that have nothing to hide.
var Public = AccessRule{}

// AnyPrincipal is the rule of routes that need a credential only.
var AnyPrincipal = AccessRule{Names: NoScope}

// IsPublic reports whether a route needs no credential.
func (a *AccessRule) IsPublic() bool { return len(a.Scopes) == 0 && a.Names != NoScope }

// OnName is the rule of a route that needs a scope on the name in its path.
func OnName(variable string, scopes ...access.Scope) AccessRule {
	return AccessRule{
		Scopes: scopes, Names: NameInPath, Variable: variable,
		refusal: "This needs the scope " + AnyOf(scopes) + " on this name.",
	}
}

// StatesPrefix begins the names of the resources that are states of Terraform.
const StatesPrefix = "terraform/"

// OnState is OnName for a state of Terraform, whose credential is sent as a password.
func OnState(scopes ...access.Scope) AccessRule {
	rule := OnName("state", scopes...)
	rule.Prefix, rule.basic = StatesPrefix, true
	return rule
}

// OnEach is the rule of a route whose handler judges each name.
func OnEach(scopes ...access.Scope) AccessRule {
	return AccessRule{
		Scopes: scopes, Names: EachName, refusal: "This needs the scope " + AnyOf(scopes) + " on the names that it concerns.",
	}
}

// OnAll is the rule of a route that needs a scope on all names.
func OnAll(scopes ...access.Scope) AccessRule {
	return AccessRule{
		Scopes: scopes, Names: EveryName, refusal: "This needs the scope " + AnyOf(scopes) + " on all names.",
	}
}

// AnyOf lists scopes for a message.
func AnyOf(scopes []access.Scope) string {
	words := make([]string, len(scopes))
	for i, scope := range scopes {
		words[i] = string(scope)
	}
	return strings.Join(words, " or ")
}

// DrainRoute is the route by which an administrator drains a gateway.
const DrainRoute = "/v1/drain"

// RuleOf returns the rule of a route. It panics if there is none.
func (s *Server) RuleOf(method, template string) AccessRule {
	rule, ok := s.Rules[method+" "+template]
	if !ok {
		panic("gateway: no access rule for " + method + " " + template)
	}
	rule.changes = method != http.MethodGet && method != http.MethodHead && !rule.IsPublic() && template != DrainRoute
	return rule
}

// authorize finds the principal of a request, counts it, and judges it by the rule of the route. Public routes are not
// counted: they cost less than a refusal, and load balancers need them. (Signing in by an issuer counts its own.)
func (s *Server) authorize(w *Answer, r *http.Request, rule *AccessRule) error {
	w.Principal, w.rule = access.Anyone, rule
	if r.ProtoMajor == 1 || s.Auth == nil && !rule.IsPublic() {
		s.Connections.know(connectionOf(r))
	}
	if rule.IsPublic() {
		return nil
	}
	if err := s.admitBrowser(r); err != nil {
		return err
	}
	if s.Auth == nil {
		return s.count(w, r)
	}
	if _, password, ok := r.BasicAuth(); ok && rule.basic {
		r.Header.Set("Authorization", BearerScheme+password)
	}
	principal, reason := s.Auth.Authenticate(r)
	if reason != auth.Accepted {
		w.Principal = nil
		return s.CountFailure(r, s.Unauthenticated(r, reason))
	}
	w.Principal = principal
	s.Connections.know(connectionOf(r))
	if err := s.count(w, r); err != nil {
		return err
	}
	if !rule.allows(principal, r) {
		return rule.Forbidden()
	}
	return nil
}

// StillAccepted returns the answer to a request that has lasted for a while, if its credential has ended; otherwise
// nil.
func (s *Server) StillAccepted(r *http.Request) error {
	if s.Auth == nil {
		return nil
	}
	if _, reason := s.Auth.Authenticate(r); reason != auth.Accepted {
		return s.Unauthenticated(r, reason)
	}
	return nil
}

func (a *AccessRule) allows(principal *access.Principal, r *http.Request) bool {
	if a.Names == NoScope {
		return true
	}
	for _, scope := range a.Scopes {
		allowed := false
		switch a.Names {
		case NameInPath:
			allowed = principal.May(scope, a.name(r))
		case EachName:
			allowed = principal.MayAny(scope)
		case EveryName:
			allowed = principal.MayAll(scope)
		case NoScope:
		}
		if allowed {
			return true
		}
	}
	return false
}

// name is the name that the path of a request has.
func (a *AccessRule) name(r *http.Request) string { return a.Prefix + PathVariable(r, a.Variable) }

// Forbidden is the same answer for every name, whether it exists or not.
func (a *AccessRule) Forbidden() *api.Problem {
	return Problem(http.StatusForbidden, api.CodeForbidden, a.refusal)
}

// Unauthenticated is the answer without a principal. It does not say whether a key was revoked, or never existed.
func (s *Server) Unauthenticated(r *http.Request, reason auth.Reason) *api.Problem {
	s.noteUnauthenticated(r, reason)
	s.Metrics.Unauthenticated(reason)
	if reason == auth.NotReady {
		return KeysNotRead()
	}
	if reason == auth.Missing {
		return Problem(http.StatusUnauthorized, api.CodeUnauthenticated,
			"Send a credential: Authorization: Bearer and an API key or a token, or a client certificate.")
	}
	return Problem(http.StatusUnauthorized, api.CodeUnauthenticated,
		"The credential is malformed, unknown, expired or revoked.")
}

// NameOf is the name under which a principal's actions are shown; "" at a gateway that asks for no credential.
func NameOf(principal *access.Principal) string {
	if principal.Kind == access.Anonymous {
		return ""
	}
	return principal.Name
}

// KeysNotRead is the answer of a gateway that can't judge credentials yet.
func KeysNotRead() *api.Problem {
	answer := Busy("The gateway has not read its keys yet, or those of the token's issuer. Try again, or another gateway.")
	answer.Reason = "keys_not_read"
	return answer
}

// readOnly is the answer of a gateway that takes no changes.
func readOnly() *api.Problem {
	answer := Busy("This gateway is read-only (--read-only), and nothing was changed. Send changes to another gateway.")
	answer.Reason = "gateway_read_only"
	return answer
}

type principalKey struct{}

// withPrincipal passes the principal to code that has the context, but not the Answer.
func withPrincipal(ctx context.Context, principal *access.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// PrincipalOf returns the principal of a request by the context that answering has made.
func PrincipalOf(ctx context.Context) *access.Principal {
	return ctx.Value(principalKey{}).(*access.Principal) //nolint:forcetypeassert // answering has set it
}

// AsActor returns a context for an administrator's action: the audit log records the author of the request.
func (s *Server) AsActor(ctx context.Context, w *Answer, r *http.Request) context.Context {
	return store.WithActor(ctx, store.Actor{
		Principal: w.Principal.Name, Address: s.Address(r), Scoped: !w.Principal.May(access.Admin, ""),
	})
}

// reservedSegments follow names in paths of the API. A name that contains one would be ambiguous.
var reservedSegments = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

// ParseName checks a name that a client sent. more are segments that are reserved, too. It returns
// store.ErrInvalidName, naming the field.
func ParseName(field, text string, more ...string) (store.Name, error) {
	name, err := store.ParseName(field, text)
	if err != nil {
		return "", err
	}
	for segment := range strings.SplitSeq(text, "/") {
		if slices.Contains(reservedSegments, segment) || slices.Contains(more, segment) {
			return "", store.InvalidName(field, "has the segment %q, which is reserved", segment)
		}
	}
	return name, nil
}

// NoName is for paths without a name.
func NoName(*http.Request) (store.Name, error) { return "", nil }

// These read a name from the path.
var (
	LockName     = pathName("lock")
	ResourceName = pathName("resource")
	KeyName      = pathName("key")
	PrefixName   = pathName("prefix")
)

// pathName returns the reader of a variable of the path. "/" and "%2F" in it mean the same.
func pathName(variable string) func(*http.Request) (store.Name, error) {
	return func(r *http.Request) (store.Name, error) {
		return ParseName(variable, PathVariable(r, variable))
	}
}
