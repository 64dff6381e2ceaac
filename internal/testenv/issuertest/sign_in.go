package issuertest

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

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
