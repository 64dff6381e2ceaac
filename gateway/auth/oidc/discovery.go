package oidc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
)

// Document is the discovery document of an issuer, as far as it is used.
type Document struct {
	Issuer           string   `json:"issuer"`
	KeysURL          string   `json:"jwks_uri"`
	AuthorizationURL string   `json:"authorization_endpoint"` // as the document says: SignInURL checks it
	TokenURL         string   `json:"token_endpoint"`         // the same: Exchange checks it
	TokenAuth        []string `json:"token_endpoint_auth_methods_supported"`
}

// Discover reads the discovery document of an issuer.
func (c *Client) Discover(ctx context.Context, issuer string) (*Document, error) {
	text, err := c.Get(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	found := &Document{}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("the discovery document can't be read: %w", err)
	}
	if found.Issuer != issuer {
		return nil, fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", found.Issuer, issuer)
	}
	return found, checkURL("jwks_uri", found.KeysURL)
}

func checkURL(field, text string) error {
	if err := accessfile.CheckURL(text); err != nil {
		return fmt.Errorf("%s in the discovery document: %w", field, err)
	}
	return nil
}
