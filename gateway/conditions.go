package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
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

// matchesNone reports whether a read's If-None-Match names the tag: the client has it already. Weak tags count (RFC 9110, section 13.1.2).
func matchesNone(header http.Header, wanted string) bool {
	return names(header.Values("If-None-Match"), func(tag string) bool { return strings.TrimPrefix(tag, "W/") == wanted })
}

// matches reports whether a read has no If-Match, or one that names the tag. Weak tags don't count (section 13.1.1).
func matches(header http.Header, wanted string) bool {
	given := header.Values("If-Match")
	return len(given) == 0 || names(given, func(tag string) bool { return tag == wanted })
}

// names reports whether one of the tags in the lines of a condition is *, or the one that is looked for.
func names(lines []string, is func(tag string) bool) bool {
	for _, line := range lines {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || is(tag) {
				return true
			}
		}
	}
	return false
}

// versionMismatch refuses a read of another version than the one that the client wants.
func versionMismatch(version int64) error {
	answer := problem(http.StatusPreconditionFailed, api.CodeVersionMismatch, "The record has another version than If-Match names; version is the current one.")
	answer.Title, answer.Version = store.ErrVersionMismatch.Error(), &version
	return answer
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
