// Package issuertest serves an issuer of tokens for tests and the demo: real keys, failures, and the authorization code
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

// Issuer issues tokens, and serves its keys by OpenID Connect Discovery at its URL, which is the claim iss. It is safe
// for concurrent use.
type Issuer struct {
	*httptest.Server

	mu     sync.Mutex
	keys   []jose.JSONWebKey // private; the newest is the last one
	made   int
	signIn signIn
	reads  int
	down   bool
	wants  string // the header Authorization
}

// New starts an issuer with one key, until the test ends.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := Start()
	t.Cleanup(i.Close)
	return i
}

// Start starts an issuer with one key, until Close.
func Start() *Issuer {
	i := &Issuer{signIn: signIn{clientID: "fencegate", codes: map[string]url.Values{}}}
	i.Rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.serveDocument)
	mux.HandleFunc("GET /keys", i.serveKeys)
	mux.HandleFunc("GET /authorize", i.serveAuthorization)
	mux.HandleFunc("POST /token", i.serveToken)
	i.Server = httptest.NewServer(mux)
	return i
}

func (i *Issuer) serveDocument(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys",
		"authorization_endpoint": i.Site() + "/authorize?tenant=1", "token_endpoint": i.URL + "/token",
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
	})
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

// KeySet returns the public keys as a JSON Web Key Set.
func (i *Issuer) KeySet() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := jose.JSONWebKeySet{}
	for _, key := range i.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	return must(json.Marshal(set))
}

// Rotate makes a new key, with which tokens are signed from now on.
func (i *Issuer) Rotate() {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	i.keys = append(i.keys, jose.JSONWebKey{
		Key: key, KeyID: fmt.Sprint("key-", i.made), Algorithm: string(jose.ES256), Use: "sig",
	})
}

// Withdraw removes all keys but the newest.
func (i *Issuer) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = i.keys[len(i.keys)-1:]
}

// Token returns a token of Claims, which the newest key signs.
func (i *Issuer) Token(changed map[string]any) string {
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
func Sign(algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options))
	return must(jwt.Signed(signer).Claims(claims).Serialize())
}

// must is for what fails by a mistake in a test alone.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
