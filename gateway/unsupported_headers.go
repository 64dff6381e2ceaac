package gateway

import (
	"net/http"
	"strings"

	"github.com/fencegate/fencegate/gateway/api"
)

// checkHeaders refuses the headers that change what a request means and that the gateway does not implement (RFC 9110): to ignore one would be to
// do something else than was asked. Conditions on versions are for records, whose handlers read them.
func checkHeaders(w http.ResponseWriter, r *http.Request, record bool) error {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if len(r.Header["Content-Range"]) > 0 && !reads { // section 14.5
		return invalid("There are no partial writes: the body replaces all of it. Send all of it, without Content-Range.")
	}
	for _, line := range r.Header["Content-Encoding"] { // section 15.5.16
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			break // there is no body that would be read
		}
		if coding := strings.TrimSpace(line); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity")
			return problem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest, "The body has the Content-Encoding "+clip(coding)+
				", which the gateway does not decode. Send it as it is; compressed data is a value with a Content-Type of its own, like application/gzip.")
		}
	}
	matches := len(r.Header["If-Match"]) > 0
	switch {
	// Section 13.1.4: it is ignored beside If-Match.
	case len(r.Header["If-Unmodified-Since"]) > 0 && !matches && (record || !reads):
		return invalid("There is no If-Unmodified-Since: times don't order writes. Send If-Match with the ETag of the version that you have read.")
	case !record && !reads && (matches || len(r.Header["If-None-Match"]) > 0):
		return invalid("This request takes no If-Match and no If-None-Match: only records have versions. An operation of a transaction has if_version.")
	}
	return nil
}
