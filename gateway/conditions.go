package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/store"
)

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// expectedVersion reads If-Match and If-None-Match of a write: which version the record must have.
func expectedVersion(header http.Header) (*int64, error) {
	match, noneMatch := header["If-Match"], header["If-None-Match"]
	switch {
	case len(match) == 0 && len(noneMatch) == 0:
		return nil, nil //nolint:nilnil // no condition is no error
	case len(match)+len(noneMatch) > 1:
		return nil, invalid("A write takes one If-Match or one If-None-Match.")
	case len(noneMatch) == 1 && strings.TrimSpace(noneMatch[0]) == "*":
		none := store.ExpectNone
		return &none, nil
	case len(noneMatch) == 1:
		return nil, invalid(`If-None-Match of a write must be *: the record must not exist.`)
	case strings.TrimSpace(match[0]) == "*":
		any := store.ExpectAny
		return &any, nil
	}
	version, ok := parseETag(match[0])
	if !ok {
		return nil, invalid(`If-Match must be * or one strong ETag that the gateway gave, like "7".`)
	}
	return &version, nil
}

// matchesNone reports whether a read's If-None-Match names the tag: the client has it already.
func matchesNone(header http.Header, wanted string) bool {
	for _, line := range header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
			if tag == "*" || tag == wanted {
				return true
			}
		}
	}
	return false
}

// parseETag reads a strong ETag of a record: a quoted positive integer.
func parseETag(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	inner, ok := strings.CutPrefix(text, `"`)
	if !ok {
		return 0, false
	}
	inner, ok = strings.CutSuffix(inner, `"`)
	version, err := strconv.ParseInt(inner, 10, 64)
	return version, ok && err == nil && version > 0 && etag(version) == text
}
