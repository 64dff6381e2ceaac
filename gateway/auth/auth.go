// Package auth finds out who sends a request. Each kind of credential has an Authenticator; a gateway may accept
// several. A credential never enters an error, a log line, a metric or a span.
package auth

import (
	"errors"
	"net/http"
	"strings"

	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/store/keyring"
)

// Reason says why a request has no principal.
type Reason string

// The reasons.
const (
	Accepted  Reason = ""          // it has one
	Missing   Reason = "missing"   // there is no credential of a kind that the gateway accepts
	Malformed Reason = "malformed" // it can't be read
	Unknown   Reason = "unknown"   // it was never issued, it is not for this gateway, or it was revoked
	Expired   Reason = "expired"
	NotReady  Reason = "not_ready" // the gateway has not read the keys yet: its own, or those of the token's issuer
)

// Reasons are all reasons but Accepted.
var Reasons = []Reason{Missing, Malformed, Unknown, Expired, NotReady}

// Authenticator finds the principal of a request. It does no I/O.
type Authenticator interface {
	// Authenticate returns the principal, or why there is none: Missing if the request has no credential of this kind.
	Authenticate(*http.Request) (*access.Principal, Reason)
}

// Several accepts several kinds of credentials. A request has one: what is in the header Authorization, or else the
// certificate of its connection.
type Several struct{ Keys, Tokens, Certificates Authenticator } // nil: not accepted

// Authenticate is part of Authenticator.
func (s Several) Authenticate(r *http.Request) (*access.Principal, Reason) {
	given, reason := bearer(r.Header)
	switch {
	case s.Certificates != nil && (reason == Missing || s.Keys == nil && s.Tokens == nil):
		return s.Certificates.Authenticate(r)
	case reason != Accepted:
		return nil, reason
	case s.Tokens != nil && (s.Keys == nil || !strings.HasPrefix(given, apikey.Prefix)):
		return s.Tokens.Authenticate(r)
	}
	return s.Keys.Authenticate(r)
}

// Keys accepts the live API keys of a Keyring, in the header Authorization: Bearer.
type Keys struct{ Keyring *keyring.Keyring }

// Authenticate is part of Authenticator.
func (k Keys) Authenticate(r *http.Request) (*access.Principal, Reason) {
	token, reason := bearer(r.Header)
	if reason != Accepted {
		return nil, reason
	}
	id, digest, ok := apikey.Parse(token)
	if !ok {
		return nil, Malformed
	}
	principal, err := k.Keyring.Find(id, digest)
	switch {
	case err == nil:
		return principal, Accepted
	case errors.Is(err, keyring.ErrExpired):
		return nil, Expired
	case errors.Is(err, keyring.ErrNotReady):
		return nil, NotReady
	}
	return nil, Unknown
}

// bearer returns the token of the header Authorization: Bearer.
func bearer(header http.Header) (string, Reason) {
	const scheme = "Bearer "
	given := header["Authorization"]
	switch {
	case len(given) == 0:
		return "", Missing
	case len(given) > 1 || len(given[0]) <= len(scheme) || !strings.EqualFold(given[0][:len(scheme)], scheme):
		return "", Malformed
	}
	return given[0][len(scheme):], Accepted
}
