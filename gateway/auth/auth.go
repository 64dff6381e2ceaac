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

// Methods accepts credentials of each kind that is not nil. A request has one credential: that of its Authorization
// header, or else the certificate of its connection.
type Methods struct{ Keys, Tokens, Certificates Authenticator }

// Authenticate is part of Authenticator.
func (m Methods) Authenticate(r *http.Request) (*access.Principal, Reason) {
	given, reason := bearer(r.Header)
	switch {
	case m.Certificates != nil && (reason == Missing || m.Keys == nil && m.Tokens == nil):
		return m.Certificates.Authenticate(r)
	case reason != Accepted:
		return nil, reason
	case m.Tokens != nil && (m.Keys == nil || !strings.HasPrefix(given, apikey.Prefix)):
		return m.Tokens.Authenticate(r)
	}
	return m.Keys.Authenticate(r)
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
