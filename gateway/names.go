package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/fencegate/fencegate/store"
)

// reservedSegments are what paths of the API say after a name; a name with one could not be told from an action.
var reservedSegments = []string{"acquire", "renew", "release", "break", "watch", "records", "fence"}

// parseName checks a name that a client sent. It returns store.ErrInvalidName, naming the field.
func parseName(field, text string) (store.Name, error) {
	name, err := store.ParseName(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	for segment := range strings.SplitSeq(text, "/") {
		if slices.Contains(reservedSegments, segment) {
			return "", fmt.Errorf("%s: %w: %q is reserved and can't be a segment", field, store.ErrInvalidName, segment)
		}
	}
	return name, nil
}

// pathName reads a name from the path. "/" and "%2F" in it mean the same.
func pathName(r *http.Request, variable string) (store.Name, error) {
	return parseName(variable, mux.Vars(r)[variable])
}
