// Package auth finds out who sends a request. Each kind of credential has an Authenticator; a gateway may accept
// several. A credential never enters an error, a log line, a metric or a span.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/oidc"
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

// Why nobody has signed in by an issuer. oidc.ErrRefused is another reason.
var (
	ErrNoSignIn    = errors.New("there is no such issuer to sign in by")
	ErrUnreachable = errors.New("the issuer can't be asked")
	ErrIDToken     = errors.New("the ID token of the issuer is not accepted")
)

// SignIns returns the issuers by which users of browsers sign in, in the order of the file; none if d is nil.
func (d *Directory) SignIns() (issuers []*accessfile.Issuer) {
	if d == nil {
		return nil
	}
	for _, issuer := range d.current.Load().file.Issuers {
		if issuer.SignIn != nil {
			issuers = append(issuers, issuer)
		}
	}
	return issuers
}

// HasSignIn reports whether users sign in by the issuer with this name.
func (d *Directory) HasSignIn(name string) bool {
	_, err := d.signIn(name)
	return err == nil
}

// signIn returns the issuer with this name, if users sign in by it.
func (d *Directory) signIn(name string) (*issuer, error) {
	if d != nil {
		for _, issuer := range d.current.Load().issuers {
			if issuer.Name == name && issuer.SignIn != nil {
				return issuer, nil
			}
		}
	}
	return nil, ErrNoSignIn
}

// BeginSignIn returns the URL of an issuer to which a browser is sent to sign in. The issuer sends it back to the
// callback, or to where the file says. BeginSignIn does no I/O: the issuer's discovery document is in memory. It returns
// ErrNoSignIn or ErrUnreachable.
func (d *Directory) BeginSignIn(name string, secrets oidc.Secrets, callback string) (string, error) {
	issuer, err := d.signIn(name)
	if err != nil {
		return "", err
	}
	endpoint := issuer.keys.Endpoint()
	if endpoint == nil {
		return "", fmt.Errorf("%w: its discovery document was not read yet", ErrUnreachable)
	}
	address, err := oidc.SignInURL(*endpoint, issuer.SignIn, secrets, issuer.redirectURL(callback))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return address, nil
}

// redirectURL is where the issuer sends a browser back to.
func (i *issuer) redirectURL(callback string) string {
	if i.SignIn.RedirectURL != "" {
		return i.SignIn.RedirectURL
	}
	return callback
}

// FinishSignIn asks an issuer for the ID token of a code, and returns it with its principal. It returns ErrNoSignIn,
// ErrUnreachable, oidc.ErrRefused or ErrIDToken.
func (d *Directory) FinishSignIn(
	ctx context.Context, name string, secrets oidc.Secrets, code, callback string,
) (token string, principal *access.Principal, err error) {
	issuer, err := d.signIn(name)
	if err != nil {
		return "", nil, err
	}
	token, err = issuer.exchange(ctx, secrets.Verifier, code, callback)
	switch {
	case errors.Is(err, oidc.ErrRefused):
		return "", nil, err
	case err != nil:
		return "", nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	// It is judged as it is in every request from now on, and besides as the answer to this sign-in.
	principal, reason := d.token(token)
	switch reason {
	case Accepted:
	case NotReady: // its key is new
		return "", nil, fmt.Errorf("%w for its new key yet", ErrUnreachable)
	default:
		return "", nil, fmt.Errorf("%w: %s", ErrIDToken, reason)
	}
	if err := issuer.checkIDToken(token, secrets.Nonce); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrIDToken, err)
	}
	return token, principal, nil
}

func (i *issuer) exchange(ctx context.Context, verifier, code, callback string) (string, error) {
	endpoint := i.keys.Endpoint()
	if endpoint == nil {
		return "", errors.New("its discovery document was not read yet")
	}
	client, err := oidc.NewClient(i.Source)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, oidc.Timeout)
	defer cancel()
	return client.Exchange(ctx, *endpoint, i.SignIn, verifier, code, i.redirectURL(callback))
}

// checkIDToken checks that a token whose signature was verified is of this issuer, for this client, and for the sign-in
// with this nonce.
func (i *issuer) checkIDToken(text, nonce string) error {
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return err
	}
	var standard jwt.Claims
	var claims struct {
		Nonce           string `json:"nonce"`
		AuthorizedParty string `json:"azp"`
	}
	if err := token.UnsafeClaimsWithoutVerification(&standard, &claims); err != nil {
		return err
	}
	switch client := i.SignIn.ClientID; {
	case standard.Issuer != i.Issuer.Issuer:
		return errors.New("it is of another issuer")
	case !standard.Audience.Contains(client) || claims.AuthorizedParty != "" && claims.AuthorizedParty != client:
		return errors.New("it is for another client")
	case subtle.ConstantTimeCompare([]byte(claims.Nonce), []byte(nonce)) != 1:
		return errors.New("it is for another sign-in")
	}
	return nil
}
