package gateway

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

// servedNames are the prefixes of the names that this gateway serves, where several fleets of gateways share the names
// and each has a database of its own. nil: every name. A request that reaches the wrong fleet would be decided by fences
// that know nothing of the name's tokens, so none is.
type servedNames []string

func parseServedNames(prefixes []string) (servedNames, error) {
	for _, prefix := range prefixes {
		if _, err := store.ParseName(prefix); err != nil {
			return nil, fmt.Errorf("%w: --names: %w", ErrInvalidConfig, err)
		}
	}
	return prefixes, nil
}

// check returns the answer to a request on a name of another fleet, or nil. A subtree above the prefixes is such a name,
// too: part of it is elsewhere.
func (s servedNames) check(name string) error {
	if s == nil || slices.ContainsFunc(s, func(prefix string) bool { return access.Covers(prefix, name) }) {
		return nil
	}
	return problem(http.StatusMisdirectedRequest, api.CodeWrongFleet, fmt.Sprintf(
		"This gateway does not serve the name %.100q (--names), and nothing was changed. Send the request to the "+
			"gateways that do.", name))
}

// checkPath is check for the name in the path, if the route has one.
func (s servedNames) checkPath(r *http.Request, rule *accessRule) error {
	if s == nil || rule.names != nameInPath || rule.isPublic() {
		return nil
	}
	return s.check(rule.name(r))
}
