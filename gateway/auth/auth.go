// Package auth finds out who sends a request. Each kind of credential has an Authenticator; a gateway may accept
// several. A credential never enters an error, a log line, a metric or a span.
package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
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

// Certificates accepts client certificates that crypto/tls has verified.
type Certificates struct {
	Directory *Directory
	// Trusts reports whether an authority is still one of clients. Connections stay open when the authority is replaced.
	Trusts func(authority *x509.Certificate) bool
}

// Authenticate is part of Authenticator. A browser shows the certificate also with requests that pages of other sites
// make; the gateway refuses those before.
func (c Certificates) Authenticate(r *http.Request) (*access.Principal, Reason) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil, Missing
	}
	reason := Unknown
	for _, chain := range r.TLS.VerifiedChains {
		if reason = c.judge(chain); reason == Accepted {
			return c.Directory.certificate(chain[0])
		}
	}
	return nil, reason
}

// judge checks again what may have changed since the connection was opened.
func (c Certificates) judge(chain []*x509.Certificate) Reason {
	now := c.Directory.now()
	for _, certificate := range chain {
		if now.Before(certificate.NotBefore) || now.After(certificate.NotAfter) {
			return Expired
		}
	}
	if !c.Trusts(chain[len(chain)-1]) {
		return Unknown
	}
	return Accepted
}

// certificate returns the principal of a certificate.
func (d *Directory) certificate(leaf *x509.Certificate) (*access.Principal, Reason) {
	version, key := d.current.Load(), sha256.Sum256(leaf.Raw)
	known, ok := version.certificates.Get(key)
	if ok {
		return known.principal, Accepted
	}
	mapping := version.file.Certificates
	if mapping == nil {
		return nil, Unknown
	}
	principal, err := mapping.Map(claimsOf(leaf), access.Certificate)
	if err != nil {
		d.logger.Debug("certificate refused", "error", err)
		return nil, Unknown
	}
	principal.ExpiresAt = leaf.NotAfter
	version.certificates.Add(key, &verified{principal: principal})
	return principal, Accepted
}

// claimsOf returns the names in a certificate. A SPIFFE ID counts only if it is the only URI, as its standard demands.
func claimsOf(leaf *x509.Certificate) accessfile.Claims {
	claims := accessfile.Claims{
		"common_name": leaf.Subject.CommonName, "dns": list(leaf.DNSNames),
		"organization": list(leaf.Subject.Organization), "organizational_unit": list(leaf.Subject.OrganizationalUnit),
	}
	if len(leaf.URIs) == 1 && leaf.URIs[0].Scheme == "spiffe" {
		claims["spiffe"] = leaf.URIs[0].String()
	}
	return claims
}

func list(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}
