package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/internal/access"
)

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
