// Package issuer is a small OpenID Connect issuer for the demo and for tests: real keys, which it serves by OpenID
// Connect Discovery, and the tokens that they sign.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer issues tokens. It is the http.Handler of its discovery document and of its keys. It is safe for concurrent
// use.
type Issuer struct {
	// URL is where it is served, and the claim iss.
	URL string
	// Endpoints are further fields of the discovery document. They must not change once it is served.
	Endpoints map[string]any

	mu   sync.Mutex
	keys []jose.JSONWebKey // private; the newest is the last one
	made int
}

// New returns an issuer with one key.
func New(url string) (*Issuer, error) {
	i := &Issuer{URL: url}
	_, err := i.Rotate()
	return i, err
}

func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
		maps.Copy(document, i.Endpoints)
		_ = json.NewEncoder(w).Encode(document)
	case "/keys":
		_, _ = w.Write(i.KeySet())
	default:
		http.NotFound(w, r)
	}
}

// KeySet returns the public keys as a JSON Web Key Set.
func (i *Issuer) KeySet() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := jose.JSONWebKeySet{}
	for _, key := range i.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	text, _ := json.Marshal(set) // public keys can be written
	return text
}

// Rotate makes a new key, with which tokens are signed from now on, and returns its ID.
func (i *Issuer) Rotate() (id string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	id = fmt.Sprint("key-", i.made)
	i.keys = append(i.keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	return id, nil
}

// Withdraw removes all keys but the newest.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Token returns a token of Claims, which the newest key signs.
func (i *Issuer) Token(changed map[string]any) (string, error) {
	i.mu.Lock()
	key := i.keys[len(i.keys)-1]
	i.mu.Unlock()
	return Sign(jose.ES256, key, i.Claims(changed))
}

// Claims returns the claims of a token that is valid for an hour, for the audience fencegate and the subject alice,
// unless they are changed. A claim that is nil is left out.
func (i *Issuer) Claims(changed map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": "fencegate", "sub": "alice",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changed)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Sign signs claims with any key.
func Sign(algorithm jose.SignatureAlgorithm, key any, claims map[string]any) (string, error) {
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
