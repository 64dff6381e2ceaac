// Package oidc asks the servers of an issuer of tokens: where its keys and endpoints are (OpenID Connect Discovery), and
// for an ID token (authorization code flow with PKCE, RFC 6749 and RFC 7636).
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
)

const (
	// Timeout is how long a caller should let the issuer take for all that it needs.
	Timeout = 5 * time.Second

	bytesMax = 1 << 20
)

// Client asks the servers of one issuer. It sends the credential to the server that it asks first, only: the configured
// one.
type Client struct {
	http       *http.Client
	credential string
	host       string
}

// NewClient returns a Client for a few requests. It reads the files of the source.
func NewClient(from accessfile.Source) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if from.CAFile != "" {
		text, err := os.ReadFile(from.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM", from.CAFile)
		}
	}
	credential, err := readSecret(from.BearerTokenFile)
	return &Client{credential: credential, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true},
		// A redirect could lead to a server that is not the issuer's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, err
}

// readSecret reads a secret from its file each time, since it is renewed. Without a file there is none.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// Get reads a document.
func (c *Client) Get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the URL of the document can't be used")
	}
	origin := request.URL.Scheme + "://" + request.URL.Host
	if c.host == "" {
		c.host = origin
	}
	if c.credential != "" && origin == c.host {
		request.Header.Set("Authorization", "Bearer "+c.credential)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, bytesMax+1))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %d", address, response.StatusCode)
	case len(text) > bytesMax:
		return nil, fmt.Errorf("%s answered with more than %d bytes", address, bytesMax)
	}
	return text, nil
}

// Discover reads the discovery document of an issuer: where its keys are, and its endpoints, as the document says.
func (c *Client) Discover(ctx context.Context, issuer string) (keysURL string, _ *oauth2.Endpoint, err error) {
	text, err := c.Get(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", nil, err
	}
	var found struct {
		Issuer           string   `json:"issuer"`
		KeysURL          string   `json:"jwks_uri"`
		AuthorizationURL string   `json:"authorization_endpoint"`
		TokenURL         string   `json:"token_endpoint"`
		TokenAuth        []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return "", nil, fmt.Errorf("the discovery document can't be read: %w", err)
	}
	if found.Issuer != issuer {
		return "", nil, fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", found.Issuer, issuer)
	}
	endpoint := oauth2.Endpoint{AuthURL: found.AuthorizationURL, TokenURL: found.TokenURL, AuthStyle: oauth2.AuthStyleInHeader}
	// Every issuer must know HTTP Basic, unless it lists other methods only.
	if slices.Contains(found.TokenAuth, "client_secret_post") && !slices.Contains(found.TokenAuth, "client_secret_basic") {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return found.KeysURL, &endpoint, checkURL("jwks_uri", found.KeysURL)
}

func checkURL(field, text string) error {
	if err := accessfile.CheckURL(text); err != nil {
		return fmt.Errorf("%s in the discovery document: %w", field, err)
	}
	return nil
}

// ErrRefused reports that the issuer has refused a code: it was used before, is too old, or was given to another client.
var ErrRefused = errors.New("the issuer has refused the code")

// Secrets tie what the issuer sends to the browser that has begun the sign-in. They are random, and used once.
type Secrets struct {
	State    string // comes back with the code
	Nonce    string // comes back in the ID token
	Verifier string // shows at the token endpoint who has begun: the issuer was sent its SHA-256 (PKCE)
}

// NewSecrets returns the Secrets of a sign-in. Each has 128 random bits or more.
func NewSecrets() Secrets {
	return Secrets{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
}

// SignInURL returns the URL to which a browser is sent to sign in.
func SignInURL(at oauth2.Endpoint, client *accessfile.SignIn, secrets Secrets, redirectURL string) (string, error) {
	config := oauth2.Config{ClientID: client.ClientID, Endpoint: at, RedirectURL: redirectURL, Scopes: client.Scopes}
	nonce := oauth2.SetAuthURLParam("nonce", secrets.Nonce)
	return config.AuthCodeURL(secrets.State, nonce, oauth2.S256ChallengeOption(secrets.Verifier)),
		checkURL("authorization_endpoint", at.AuthURL)
}

// Exchange returns the ID token for a code, unverified. It returns ErrRefused, or what prevented an answer. No error has
// the code, a secret or a token in it.
func (c *Client) Exchange(
	ctx context.Context, at oauth2.Endpoint, client *accessfile.SignIn, verifier, code, redirectURL string,
) (string, error) {
	secret, err := readSecret(client.ClientSecretFile)
	if err != nil {
		return "", err
	}
	if secret == "" {
		at.AuthStyle = oauth2.AuthStyleInParams // a public client has its ID alone
	}
	if err := checkURL("token_endpoint", at.TokenURL); err != nil {
		return "", err
	}
	config := oauth2.Config{ClientID: client.ClientID, ClientSecret: secret, Endpoint: at, RedirectURL: redirectURL}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, c.http)
	answer, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok { // its text has all that the issuer has sent
		status := refusal.Response.StatusCode
		if err = fmt.Errorf("%s answered %d %.40q", at.TokenURL, status, refusal.ErrorCode); status >= 400 && status < 500 {
			return "", fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	if err != nil {
		return "", err
	}
	token, ok := answer.Extra("id_token").(string)
	if !ok {
		return "", fmt.Errorf("%s answered without an ID token", at.TokenURL)
	}
	return token, nil
}
