package oidc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/oauth2"

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
