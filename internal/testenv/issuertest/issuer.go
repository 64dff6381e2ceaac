// Package issuertest serves an issuer of tokens for tests. It adds failures, and the authorization code flow, which
// signs everybody in as alice.
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
	*Signer

	signIn signIn

	mu    sync.Mutex
	reads int
	down  bool
	wants string // the header Authorization
}

// New starts an issuer with one key, until the test ends.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{signIn: signIn{clientID: "fencegate", codes: map[string]url.Values{}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /keys", i.serveKeys)
	mux.HandleFunc("GET /authorize", i.serveAuthorization)
	mux.HandleFunc("POST /token", i.serveToken)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	made, err := NewSigner(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	i.Signer = made
	i.Endpoints = map[string]any{
		"authorization_endpoint": i.Site() + "/authorize?tenant=1", "token_endpoint": i.URL + "/token",
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic"},
	}
	mux.Handle("GET /", i)
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
	i.ServeHTTP(w, r)
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

// Rotate makes a new key, with which tokens are signed from now on, and returns its ID.
func (i *Issuer) Rotate(t testing.TB) string {
	t.Helper()
	id, err := i.Signer.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Token returns a token of Claims, which the newest key signs.
func (i *Issuer) Token(t testing.TB, changed map[string]any) string {
	t.Helper()
	text, err := i.Signer.Token(changed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Sign signs claims with any key.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	text, err := sign(algorithm, key, claims)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Signer is a small OpenID Connect issuer: real keys, which it serves by OpenID Connect Discovery as an http.Handler,
// and the tokens that they sign. It is safe for concurrent use.
type Signer struct {
	// URL is where it is served, and the claim iss.
	URL string
	// Endpoints are further fields of the discovery document. They must not change once it is served.
	Endpoints map[string]any

	mu   sync.Mutex
	keys []jose.JSONWebKey // private; the newest is the last one
	made int
}

// NewSigner returns one with one key.
func NewSigner(url string) (*Signer, error) {
	s := &Signer{URL: url}
	_, err := s.Rotate()
	return s, err
}

func (s *Signer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		document := map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys"}
		maps.Copy(document, s.Endpoints)
		_ = json.NewEncoder(w).Encode(document)
	case "/keys":
		_, _ = w.Write(s.KeySet())
	default:
		http.NotFound(w, r)
	}
}

// KeySet returns the public keys as a JSON Web Key Set.
func (s *Signer) KeySet() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := jose.JSONWebKeySet{}
	for _, key := range s.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	text, _ := json.Marshal(set) // public keys can be written
	return text
}

// Rotate makes a new key, with which tokens are signed from now on, and returns its ID.
func (s *Signer) Rotate() (id string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	id = fmt.Sprint("key-", s.made)
	s.keys = append(s.keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	return id, nil
}

// Withdraw removes all keys but the newest.
func (s *Signer) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = s.keys[len(s.keys)-1:]
}

// Token returns a token of Claims, which the newest key signs.
func (s *Signer) Token(changed map[string]any) (string, error) {
	s.mu.Lock()
	key := s.keys[len(s.keys)-1]
	s.mu.Unlock()
	return sign(jose.ES256, key, s.Claims(changed))
}

// Claims returns the claims of a token that is valid for an hour, for the audience fencegate and the subject alice,
// unless they are changed. A claim that is nil is left out.
func (s *Signer) Claims(changed map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": s.URL, "aud": "fencegate", "sub": "alice",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, changed)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// sign signs claims with any key.
func sign(algorithm jose.SignatureAlgorithm, key any, claims map[string]any) (string, error) {
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
