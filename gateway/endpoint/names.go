package endpoint

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/access"

	"github.com/fencegate/fencegate/store"
)

// reservedSegments follow names in paths of the API. A name that contains one would be ambiguous.
var reservedSegments = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

// ElectionSegments also follow the names of elections. A lock with such a name is no election.
var ElectionSegments = []string{"campaign", "resign", "observe"}

// ParseName checks a name that a client sent. more are segments that are reserved, too. It returns
// store.ErrInvalidName, naming the field.
func ParseName(field, text string, more ...string) (store.Name, error) {
	name, err := store.ParseName(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	for segment := range strings.SplitSeq(text, "/") {
		if slices.Contains(reservedSegments, segment) || slices.Contains(more, segment) {
			return "", fmt.Errorf("%s: %w: %q is reserved and can't be a segment",
				field, store.ErrInvalidName, segment)
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
	ElectionName = pathName("election", ElectionSegments...) // also the name of its lock
)

// pathName returns the reader of a variable of the path. "/" and "%2F" in it mean the same.
func pathName(variable string, reserved ...string) func(*http.Request) (store.Name, error) {
	return func(r *http.Request) (store.Name, error) {
		return ParseName(variable, PathVariable(r, variable), reserved...)
	}
}

// servedNames are the prefixes of the names that this gateway serves, where several fleets of gateways share the names
// and each has a database of its own. nil: every name. A request that reaches the wrong fleet would be decided by fences
// that know nothing of the name's tokens, so none is.
type servedNames []string

// check returns the answer to a request on a name of another fleet, or nil. A subtree above the prefixes is such a name,
// too: part of it is elsewhere.
func (s servedNames) check(name string) error {
	if s == nil || slices.ContainsFunc(s, func(prefix string) bool { return access.Covers(prefix, name) }) {
		return nil
	}
	return Problem(http.StatusMisdirectedRequest, api.CodeWrongFleet, fmt.Sprintf(
		"This gateway does not serve the name %.100q (--names), and nothing was changed. Send the request to the "+
			"gateways that do.", name))
}

// checkPath is check for the name in the path, if the route has one.
func (s servedNames) checkPath(r *http.Request, rule *AccessRule) error {
	if s == nil || rule.Names != NameInPath || rule.IsPublic() {
		return nil
	}
	return s.check(rule.name(r))
}

// CheckName returns the answer to a request on a name of another fleet, or nil.
func (s *Server) CheckName(name string) error { return s.names.check(name) }
