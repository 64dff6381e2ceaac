package endpoint

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// ETag is the entity tag of a version.
func ETag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// MatchesNone reports whether a read's If-None-Match names the tag: the client has that version already. Weak tags
// count (RFC 9110, section 13.1.2).
func MatchesNone(header http.Header, wanted string) bool {
	return anyTag(header["If-None-Match"], wanted, "W/"+wanted)
}

// Matches reports whether a read has no If-Match, or one that names the tag. Weak tags don't count (section 13.1.1).
func Matches(header http.Header, wanted string) bool {
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

// ParseETag reads a strong ETag of a record: a quoted positive integer.
func ParseETag(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	version, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	return version, err == nil && version > 0 && ETag(version) == text
}

// refuseUnsupported refuses, before the body is read, headers of RFC 9110 that change what a request means and that the
// gateway does not implement. Conditions on versions are for records, whose handlers read them.
func refuseUnsupported(w *Answer, r *http.Request, record bool) error {
	reads := isRead(r)
	if len(r.Header["Content-Range"]) > 0 && !reads { // section 14.5
		return Invalid("There are no partial writes: the body replaces the whole value. " +
			"Send all of it, without Content-Range.")
	}
	for _, line := range r.Header["Content-Encoding"] { // section 15.5.16
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			break // the gateway reads no body
		}
		if coding := strings.TrimSpace(line); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return Problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest,
				"The body has the Content-Encoding "+Clip(coding)+", which the gateway does not decode. Send it as it is; "+
					"compressed data is a value with a Content-Type of its own, like application/gzip.")
		}
	}
	matches := len(r.Header["If-Match"]) > 0
	switch {
	// Section 13.1.4: beside If-Match it is ignored.
	case len(r.Header["If-Unmodified-Since"]) > 0 && !matches && (record || !reads):
		return Invalid("There is no If-Unmodified-Since: times don't order writes. " +
			"Send If-Match with the ETag of the version that you have read.")
	case !record && !reads && (matches || len(r.Header["If-None-Match"]) > 0):
		return Invalid("This request takes no If-Match and no If-None-Match: only records have versions. " +
			"An operation of a transaction has if_version.")
	}
	return nil
}

// isRead reports whether a request changes nothing.
func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
