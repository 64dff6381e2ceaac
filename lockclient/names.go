package lockclient

import (
	"net/url"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// reserved are the words that name operations in paths.
var reserved = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

// reservedElections are the further ones in the paths of elections.
var reservedElections = []string{"campaign", "resign", "observe"}

func reservedSegment(op, name, segment string) error {
	return refused(op, api.CodeInvalidName,
		"a name can't have the segment "+segment+", which is a word of the API: choose another than "+quoteClipped(name))
}

// namePath makes the path of a name: each segment escaped, the slashes between them raw. It refuses names that would
// arrive as another name or another operation: with empty or dot segments, which any proxy resolves, or with reserved
// words. The gateway checks all other rules about names.
func namePath(op, name string) (string, error) {
	segments := strings.Split(name, "/")
	for i, segment := range segments {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return "", refused(op, api.CodeInvalidName,
				"a name has segments between slashes, none of them empty, . or ..: choose another than "+quoteClipped(name))
		case slices.Contains(reserved, segment):
			return "", reservedSegment(op, name, segment)
		}
		segments[i] = url.PathEscape(segment)
	}
	return strings.Join(segments, "/"), nil
}
