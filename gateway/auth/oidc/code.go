package oidc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
)

// ErrRefused reports that the issuer has refused a code: it was used before, is too old, or was given to another client.
var ErrRefused = errors.New("the issuer has refused the code")

// Secrets tie what the issuer sends to the browser that has begun the sign-in. They are random, and used once.
type Secrets struct {
	State    string // comes back with the code
	Nonce    string // comes back in the ID token
	Verifier string // shows at the token endpoint who has begun: the issuer was sent its SHA-256 (PKCE)
}

// NewSecrets returns the Secrets of a sign-in. Each text of rand.Text has 128 bits or more; PKCE demands at least 43
// characters.
func NewSecrets() Secrets {
	return Secrets{State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text()}
}

// SignInURL returns the URL to which a browser is sent to sign in.
func (d *Document) SignInURL(client *accessfile.SignIn, secrets Secrets, redirectURL string) (string, error) {
	if err := checkURL("authorization_endpoint", d.AuthorizationURL); err != nil {
		return "", err
	}
	address, err := url.Parse(d.AuthorizationURL)
	if err != nil {
		return "", err
	}
	challenge := sha256.Sum256([]byte(secrets.Verifier))
	query := address.Query() // the endpoint may have parameters of its own
	for name, value := range map[string]string{
		"response_type": "code", "client_id": client.ClientID, "redirect_uri": redirectURL,
		"scope": strings.Join(client.Scopes, " "), "state": secrets.State, "nonce": secrets.Nonce,
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256",
	} {
		query.Set(name, value)
	}
	address.RawQuery = query.Encode()
	return address.String(), nil
}

// Exchange returns the ID token for a code, unverified. It returns ErrRefused, or what prevented an answer. No error has
// the code, a secret or a token in it.
func (c *Client) Exchange(
	ctx context.Context, from *Document, client *accessfile.SignIn, verifier, code, redirectURL string,
) (string, error) {
	if err := checkURL("token_endpoint", from.TokenURL); err != nil {
		return "", err
	}
	request, err := newExchange(ctx, from, client, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirectURL}, "code_verifier": {verifier},
	})
	if err != nil {
		return "", err
	}
	status, text, err := c.do(request)
	if err != nil {
		return "", err
	}
	var answer struct {
		IDToken string `json:"id_token"`
		Error   string `json:"error"`
	}
	err = json.Unmarshal(text, &answer)
	switch {
	case status == http.StatusOK && err == nil && answer.IDToken != "":
		return answer.IDToken, nil
	case status >= 400 && status < 500:
		return "", fmt.Errorf("%w: %s answered %d %.40q", ErrRefused, from.TokenURL, status, answer.Error)
	}
	return "", fmt.Errorf("%s answered %d without an ID token", from.TokenURL, status)
}

// newExchange returns the request for an ID token. A client with a secret shows it by HTTP Basic, which every issuer
// must know, unless the issuer lists other methods only.
func newExchange(
	ctx context.Context, from *Document, client *accessfile.SignIn, form url.Values,
) (*http.Request, error) {
	secret := ""
	if client.ClientSecretFile != "" {
		text, err := os.ReadFile(client.ClientSecretFile) // it is renewed
		if err != nil {
			return nil, err
		}
		secret = strings.TrimSpace(string(text))
	}
	basic := secret != "" &&
		(slices.Contains(from.TokenAuth, "client_secret_basic") || !slices.Contains(from.TokenAuth, "client_secret_post"))
	if !basic {
		form.Set("client_id", client.ClientID)
		if secret != "" {
			form.Set("client_secret", secret)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, from.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("the URL of the token endpoint can't be used")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	if basic {
		request.SetBasicAuth(url.QueryEscape(client.ClientID), url.QueryEscape(secret))
	}
	return request, nil
}
