package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/store"
)

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// expectedVersion reads If-Match and If-None-Match of a write: the version that the record must have.
func expectedVersion(header http.Header) (*int64, error) {
	match, noneMatch := header["If-Match"], header["If-None-Match"]
	switch {
	case len(match) == 0 && len(noneMatch) == 0:
		return nil, nil //nolint:nilnil // no condition is no error
	case len(match)+len(noneMatch) > 1:
		return nil, invalid("A write takes one If-Match or one If-None-Match.")
	case len(noneMatch) == 1 && strings.TrimSpace(noneMatch[0]) == "*":
		return new(store.ExpectNone), nil
	case len(noneMatch) == 1:
		return nil, invalid(`If-None-Match of a write must be *: the record must not exist.`)
	case strings.TrimSpace(match[0]) == "*":
		return new(store.ExpectAny), nil
	}
	version, ok := parseETag(match[0])
	if !ok {
		return nil, invalid(`If-Match must be * or one strong ETag that the gateway returned, like "7".`)
	}
	return &version, nil
}

// matchesNone reports whether a read's If-None-Match names the tag: the client has that version already. Weak tags
// count (RFC 9110, section 13.1.2).
func matchesNone(header http.Header, wanted string) bool {
	return anyTag(header["If-None-Match"], wanted, "W/"+wanted)
}

// matches reports whether a read has no If-Match, or one that names the tag. Weak tags don't count (section 13.1.1).
func matches(header http.Header, wanted string) bool {
	given := header["If-Match"]
	return len(given) == 0 || anyTag(given, wanted)
}

// anyTag reports whether one of the tags in the lines of a condition is *, or among the wanted ones.
func anyTag(lines []string, wanted ...string) bool {
	for _, line := range lines {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || slices.Contains(wanted, tag) {
				return true
			}
		}
	}
	return false
}

// versionMismatch is the answer to a read of another version than the current one.
func versionMismatch(version int64) error {
	answer := problem(http.StatusPreconditionFailed, api.CodeVersionMismatch,
		"The record has another version than If-Match names; version is the current one.")
	answer.Title, answer.Version = store.ErrVersionMismatch.Error(), &version
	return answer
}

// parseETag reads a strong ETag of a record: a quoted positive integer.
func parseETag(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	version, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	return version, err == nil && version > 0 && etag(version) == text
}

// refuseUnsupported refuses, before the body is read, headers of RFC 9110 that change what a request means and that the
// gateway does not implement. Conditions on versions are for records, whose handlers read them.
func refuseUnsupported(w *answerWriter, r *http.Request, record bool) error {
	reads := isRead(r)
	if len(r.Header["Content-Range"]) > 0 && !reads { // section 14.5
		return invalid("There are no partial writes: the body replaces the whole value. " +
			"Send all of it, without Content-Range.")
	}
	for _, line := range r.Header["Content-Encoding"] { // section 15.5.16
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			break // the gateway reads no body
		}
		if coding := strings.TrimSpace(line); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
				"The body has the Content-Encoding "+clip(coding)+", which the gateway does not decode. Send it as it is; "+
					"compressed data is a value with a Content-Type of its own, like application/gzip.")
		}
	}
	matches := len(r.Header["If-Match"]) > 0
	switch {
	// Section 13.1.4: beside If-Match it is ignored.
	case len(r.Header["If-Unmodified-Since"]) > 0 && !matches && (record || !reads):
		return invalid("There is no If-Unmodified-Since: times don't order writes. " +
			"Send If-Match with the ETag of the version that you have read.")
	case !record && !reads && (matches || len(r.Header["If-None-Match"]) > 0):
		return invalid("This request takes no If-Match and no If-None-Match: only records have versions. " +
			"An operation of a transaction has if_version.")
	}
	return nil
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
