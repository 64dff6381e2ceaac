// Package access says who may do what. A principal is a caller of a gateway. It has grants: each is a scope on a name
// and all names below it. No scope implies another one. The package does no I/O.
package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scope is a kind of work.
type Scope string

// The scopes.
const (
	Lock    Scope = "lock"    // acquire, renew and release leases; sessions
	Write   Scope = "write"   // write records and rows
	Read    Scope = "read"    // read records and fences
	Observe Scope = "observe" // see locks, leases, waiters, events and rejections
	Admin   Scope = "admin"   // set policies and fences, break leases, manage keys
)

// Scopes are all scopes, in the order in which they are shown.
var Scopes = []Scope{Lock, Write, Read, Observe, Admin}

// AllNames is the prefix that covers every name.
const AllNames = ""

// Grant is a scope on the name Prefix and all names below it.
type Grant struct {
	Scope  Scope
	Prefix string
}

// String writes a grant as ParseGrants reads it.
func (g Grant) String() string { return string(g.Scope) + ":" + g.Prefix }

// Covers reports whether name is the prefix or below it.
func Covers(prefix, name string) bool {
	if prefix == AllNames {
		return true
	}
	return strings.HasPrefix(name, prefix) && (len(name) == len(prefix) || name[len(prefix)] == '/')
}

// Minimal returns the grants without those that another one covers, in the order of Scopes and then of the prefixes.
func Minimal(grants []Grant) []Grant {
	sorted := slices.Clone(grants)
	slices.SortFunc(sorted, func(a, b Grant) int {
		return cmp.Or(slices.Index(Scopes, a.Scope)-slices.Index(Scopes, b.Scope), strings.Compare(a.Prefix, b.Prefix))
	})
	minimal := sorted[:0]
	for _, grant := range sorted { // a prefix sorts before the names that it covers
		if !slices.ContainsFunc(minimal, func(kept Grant) bool {
			return kept.Scope == grant.Scope && Covers(kept.Prefix, grant.Prefix)
		}) {
			minimal = append(minimal, grant)
		}
	}
	return minimal
}

// Kind is how a principal shows who it is.
type Kind string

// The kinds of principals.
const (
	Anonymous   Kind = "anonymous"   // it does not: the gateway asks for no credential
	Key         Kind = "key"         // by an API key
	Token       Kind = "token"       // by a token that an issuer has signed
	Certificate Kind = "certificate" // by a client certificate
	Database    Kind = "database"    // by a connection to the database itself
)

const anonymous = "anonymous"

// SQLPrefix begins the names of principals that call the functions by SQL, before the role; see fence.note_action.
const SQLPrefix = "sql:"

// IsReserved reports whether no credential may give this name to a principal: it says that there was no credential, or
// that it was a role of the database.
func IsReserved(name string) bool { return name == anonymous || strings.HasPrefix(name, SQLPrefix) }

// Principal is a caller. It does not change.
type Principal struct {
	Name string
	Kind Kind
	// ExpiresAt is the end of the credential, by the clock of this process; zero: it has none.
	ExpiresAt time.Time

	prefixes map[Scope][]string // those of the minimal grants
}

// Anyone is the principal of all requests to a gateway that asks for no credential. It may do everything.
var Anyone = func() *Principal {
	grants := make([]Grant, len(Scopes))
	for i, scope := range Scopes {
		grants[i] = Grant{scope, AllNames}
	}
	return New(anonymous, Anonymous, grants)
}()

// New returns a principal with these grants.
func New(name string, kind Kind, grants []Grant) *Principal {
	p := &Principal{Name: name, Kind: kind, prefixes: map[Scope][]string{}}
	for _, grant := range Minimal(grants) {
		p.prefixes[grant.Scope] = append(p.prefixes[grant.Scope], grant.Prefix)
	}
	return p
}

// May reports whether the principal has the scope on a name.
func (p *Principal) May(scope Scope, name string) bool {
	for _, prefix := range p.prefixes[scope] {
		if Covers(prefix, name) {
			return true
		}
	}
	return false
}

// MayAll reports whether the principal has the scope on every name.
func (p *Principal) MayAll(scope Scope) bool { return p.May(scope, AllNames) }

// MayAny reports whether the principal has the scope on some name.
func (p *Principal) MayAny(scope Scope) bool { return len(p.prefixes[scope]) > 0 }

// Within returns the prefixes of the names on which the principal has the scope: sorted, none covered by another one,
// and not nil. The caller must not change them.
func (p *Principal) Within(scope Scope) []string {
	if prefixes := p.prefixes[scope]; prefixes != nil {
		return prefixes
	}
	return []string{}
}

// Grants returns the minimal grants.
func (p *Principal) Grants() (grants []Grant) {
	for _, scope := range Scopes {
		for _, prefix := range p.prefixes[scope] {
			grants = append(grants, Grant{scope, prefix})
		}
	}
	return grants
}

// allScopes stands for all scopes in a text.
const allScopes = "all"

// ErrMalformed says that a text is not a list of scopes and a prefix.
var ErrMalformed = errors.New("it must be scopes, a colon and a name, like lock,write:jobs")

// ParseGrants reads one or more scopes, a colon and a prefix, like "lock,write:jobs". "all" stands for all scopes. An
// empty prefix covers every name. Names may have colons in them. It returns ErrMalformed. It does not check that the
// prefix is a name.
func ParseGrants(text string) ([]Grant, error) {
	scopes, prefix, ok := strings.Cut(text, ":")
	if !ok {
		return nil, fmt.Errorf("%w; a colon without a name after it is for every name", ErrMalformed)
	}
	var grants []Grant
	for word := range strings.SplitSeq(scopes, ",") {
		named := []Scope{Scope(word)}
		if word == allScopes {
			named = Scopes
		}
		for _, scope := range named {
			if !slices.Contains(Scopes, scope) {
				return nil, fmt.Errorf("%w; the scopes are lock, write, read, observe and admin, or all", ErrMalformed)
			}
			grants = append(grants, Grant{scope, prefix})
		}
	}
	return grants, nil
}

// ParseAll reads several texts with ParseGrants, and returns the minimal grants.
func ParseAll(texts []string) ([]Grant, error) {
	var all []Grant
	for _, text := range texts {
		grants, err := ParseGrants(text)
		if err != nil {
			return nil, fmt.Errorf("%.100q: %w", text, err)
		}
		all = append(all, grants...)
	}
	return Minimal(all), nil
}

// Texts writes grants so that ParseAll reads them.
func Texts(grants []Grant) []string {
	texts := make([]string, len(grants))
	for i, grant := range grants {
		texts[i] = grant.String()
	}
	return texts
}
