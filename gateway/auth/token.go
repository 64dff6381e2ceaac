package auth

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
	"github.com/fencegate/fencegate/gateway/auth/jwks"
	"github.com/fencegate/fencegate/internal/access"
)

// tokenMax is the size of a token, at most, in bytes.
const tokenMax = 16 << 10

// algorithms are those of which the issuer alone has the private key. With a symmetric one, or none, everybody could
// sign who can verify.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

var errNoEnd = errors.New("the token has no exp")

// Tokens accepts JSON Web Tokens (RFC 7519) of the issuers of a Directory, in the header Authorization: Bearer.
type Tokens struct{ Directory *Directory }

// Authenticate is part of Authenticator.
func (t Tokens) Authenticate(r *http.Request) (*access.Principal, Reason) {
	token, reason := bearer(r.Header)
	if reason != Accepted {
		return nil, reason
	}
	return t.Directory.token(token)
}

// token returns the principal of a token.
func (d *Directory) token(text string) (*access.Principal, Reason) {
	if len(text) > tokenMax {
		return nil, Malformed
	}
	version, now, key := d.current.Load(), d.now(), sha256.Sum256([]byte(text))
	known, ok := version.tokens.Get(key)
	if !ok || known.set != known.issuer.keys.Set() {
		var reason Reason
		if known, reason = d.verify(version, text, now); reason != Accepted {
			return nil, reason
		}
		version.tokens.Add(key, known)
	}
	if now.After(known.principal.ExpiresAt) {
		return nil, Expired
	}
	return known.principal, Accepted
}

// verify checks a token by the keys of its issuer.
func (d *Directory) verify(version *directoryVersion, text string, now time.Time) (*verified, Reason) {
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil {
		return nil, Malformed
	}
	var claimed jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&claimed); err != nil {
		return nil, Malformed
	}
	issuer := version.issuers[claimed.Issuer]
	if issuer == nil {
		return nil, Unknown
	}
	set, keys, err := issuer.keys.Find(token.Headers[0].KeyID)
	if errors.Is(err, jwks.ErrNotReady) {
		return nil, NotReady
	}
	accepted := &verified{issuer: issuer, set: set}
	if err == nil {
		accepted.principal, err = issuer.accept(token, keys, now)
	}
	if err != nil {
		// A client learns no more than that the credential is refused; its issuer's operator may need the reason.
		d.logger.Debug("token refused", "issuer", issuer.Name, "error", err)
	}
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, Expired
	case err != nil:
		return nil, Unknown
	}
	return accepted, Accepted
}

// accept returns the principal of a token that one of the keys verifies.
func (i *issuer) accept(token *jwt.JSONWebToken, keys []jose.JSONWebKey, now time.Time) (*access.Principal, error) {
	var standard jwt.Claims
	claims, err := accessfile.Claims{}, jwks.ErrUnknown
	for _, key := range keys {
		if key.Algorithm != "" && key.Algorithm != token.Headers[0].Algorithm {
			continue
		}
		if err = token.Claims(key, &standard, &claims); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if standard.Expiry == nil {
		return nil, errNoEnd
	}
	expected := jwt.Expected{Issuer: i.Issuer.Issuer, AnyAudience: i.Audiences, Time: now}
	if err := standard.ValidateWithLeeway(expected, *i.Leeway); err != nil {
		return nil, err
	}
	principal, err := i.Map(claims, access.Token)
	if err == nil {
		principal.ExpiresAt = standard.Expiry.Time().Add(*i.Leeway)
	}
	return principal, err
}
