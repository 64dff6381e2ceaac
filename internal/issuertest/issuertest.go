// Package issuertest has an issuer of tokens for tests: a server of key sets, real signatures, and the authorization code
// flow, which signs everybody in as alice.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer issues tokens, and serves its keys by OpenID Connect Discovery.
type Issuer struct {
	URL string

	t      testing.TB
	signIn signIn

	mu    sync.Mutex
	keys  []jose.JSONWebKey // private; the newest is the last one
	made  int
	reads int
	down  bool
	wants string // the header Authorization
}

// New starts an issuer with one key, until the test ends.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, signIn: signIn{clientID: "fencegate", codes: map[string]url.Values{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(i.document())
	})
	mux.HandleFunc("GET /keys", i.serveKeys)
	mux.HandleFunc("GET /authorize", i.serveAuthorization)
	mux.HandleFunc("POST /token", i.serveToken)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.Rotate(t)
	return i
}

func (i *Issuer) serveKeys(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.reads++
	down := i.down || r.Header.Get("Authorization") != i.wants
	i.mu.Unlock()
	if down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write(i.KeySet())
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
func (i *Issuer) Rotate(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	id := fmt.Sprint("key-", i.made)
	i.keys = append(i.keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	return id
}

// document is the discovery document.
func (i *Issuer) document() map[string]any {
	return map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.Site() + "/authorize?tenant=1",
		"token_endpoint": i.URL + "/token", "token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
	}
}

// Withdraw removes all keys but the newest.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// SetDown makes the server of the keys fail, or answer again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Want makes the server answer only requests with this header Authorization.
func (i *Issuer) Want(authorization string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wants = authorization
}

// Reads returns how often the keys were asked for.
func (i *Issuer) Reads() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reads
}

// Token returns a token that is valid for an hour, for the audience fencegate and the subject alice, unless the claims
// say something else. A claim that is nil is left out.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	i.mu.Lock()
	key := i.keys[len(i.keys)-1]
	i.mu.Unlock()
	return Sign(t, jose.ES256, key, i.Claims(claims))
}

// Claims returns the claims of a Token.
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
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
