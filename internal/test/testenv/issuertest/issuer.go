// Package issuertest serves an issuer of tokens for tests and the demo: real keys, failures, and the authorization code
// flow, which signs everybody in as alice.
package issuertest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
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

// signIn is what the endpoints of the authorization code flow know.
type signIn struct {
	clientID, secret string // a public client has no secret
	asks             bool
	claims           map[string]any
	signer           *Issuer               // of the ID tokens; nil: this one
	codes            map[string]url.Values // the authorization request of each unused code
	exchanges        int
}

// SetClient makes the issuer know this client only. Without a secret it is a public one.
func (i *Issuer) SetClient(id, secret string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signIn.clientID, i.signIn.secret = id, secret
}

// SetAsks makes the issuer show a page, whose link with the ID "continue" leads back.
func (i *Issuer) SetAsks() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signIn.asks = true
}

// SetIDToken changes claims of the ID tokens from now on. A claim that is nil is left out.
func (i *Issuer) SetIDToken(claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signIn.claims = claims
}

// SetSigner makes the token endpoint answer with tokens of another issuer, or of its own again if that is nil.
func (i *Issuer) SetSigner(other *Issuer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.signIn.signer = other
}

// Site is where browsers find the authorization endpoint: to them, that is another site than 127.0.0.1.
func (i *Issuer) Site() string { return strings.Replace(i.URL, "127.0.0.1", "localhost", 1) }

// Exchanges returns how often the token endpoint was asked.
func (i *Issuer) Exchanges() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.signIn.exchanges
}

var page = template.Must(template.New("").Parse(
	`<!doctype html><link rel="icon" href="data:,"><a id="continue" href="{{.}}">Continue as alice</a>`))

// serveAuthorization sends the browser back with a code. It refuses what a client must not leave out.
func (i *Issuer) serveAuthorization(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := r.URL.Query()
	back, err := url.Parse(asked.Get("redirect_uri"))
	if err != nil || back.Host == "" || asked.Get("client_id") != i.signIn.clientID || asked.Get("tenant") != "1" ||
		asked.Get("response_type") != "code" || !slices.Contains(asked["scope"], "openid") || asked.Get("state") == "" ||
		asked.Get("code_challenge") == "" || asked.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad authorization request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.signIn.codes[code] = asked
	back.RawQuery = url.Values{"code": {code}, "state": {asked.Get("state")}, "session_state": {"1"}}.Encode()
	if i.signIn.asks {
		_ = page.Execute(w, back.String())
		return
	}
	http.Redirect(w, r, back.String(), http.StatusFound) //nolint:gosec // it serves one test, which asks for that
}

// serveToken answers an ID token for a code, once, to the client that has asked for it.
func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.signIn.exchanges++
	code := r.PostFormValue("code")
	asked, known := i.signIn.codes[code]
	delete(i.signIn.codes, code)
	client, claims, down := i.signIn, i.signIn.claims, i.down
	i.mu.Unlock()
	id, secret, ok := r.BasicAuth()
	if !ok {
		id = r.PostFormValue("client_id")
	}
	w.Header().Set("Content-Type", "application/json")
	verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	refusal := ""
	switch {
	case down:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case id != url.QueryEscape(client.clientID) || secret != url.QueryEscape(client.secret) || ok != (client.secret != ""):
		refusal = "invalid_client"
	case !known || r.PostFormValue("grant_type") != "authorization_code" ||
		r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(verifier[:]) != asked.Get("code_challenge"):
		refusal = "invalid_grant"
	}
	if refusal != "" {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": refusal})
		return
	}
	all := map[string]any{"aud": client.clientID, "nonce": asked.Get("nonce")}
	maps.Copy(all, claims)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": "opaque", "token_type": "Bearer", "expires_in": 60, "id_token": cmp.Or(client.signer, i).Token(all),
	})
}
