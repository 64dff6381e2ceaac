// Package issuertest serves an issuer of tokens for tests. It adds failures, and the authorization code flow, which
// signs everybody in as alice.
package issuertest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/fencegate/fencegate/internal/issuer"
)

// Issuer issues tokens, and serves its keys by OpenID Connect Discovery.
type Issuer struct {
	*issuer.Issuer

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
	made, err := issuer.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	i.Issuer = made
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
	id, err := i.Issuer.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Token returns a token of Claims, which the newest key signs.
func (i *Issuer) Token(t testing.TB, changed map[string]any) string {
	t.Helper()
	text, err := i.Issuer.Token(changed)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Sign signs claims with any key.
func Sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	text, err := issuer.Sign(algorithm, key, claims)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
