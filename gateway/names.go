package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/store"
)

// reservedSegments follow names in paths of the API. A name that contains one would be ambiguous.
var reservedSegments = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

// electionSegments also follow the names of elections. A lock with such a name is no election.
var electionSegments = []string{"campaign", "resign", "observe"}

// parseName checks a name that a client sent. more are segments that are reserved, too. It returns
// store.ErrInvalidName, naming the field.
func parseName(field, text string, more ...string) (store.Name, error) {
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

// noName is for paths without a name.
func noName(*http.Request) (store.Name, error) { return "", nil }

// These read a name from the path.
var (
	lockName     = pathName("lock")
	resourceName = pathName("resource")
	keyName      = pathName("key")
	prefixName   = pathName("prefix")
	electionName = pathName("election", electionSegments...) // also the name of its lock
)

// pathName returns the reader of a variable of the path. "/" and "%2F" in it mean the same.
func pathName(variable string, reserved ...string) func(*http.Request) (store.Name, error) {
	return func(r *http.Request) (store.Name, error) {
		return parseName(variable, pathVariable(r, variable), reserved...)
	}
}
