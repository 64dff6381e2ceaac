package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
