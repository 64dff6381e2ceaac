package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fencegate/fencegate/gateway/auth/accessfile"
)

const (
	fetchTimeout = 5 * time.Second
	bytesMax     = 1 << 20
)

// fetch reads the key set of an issuer as it is now.
func fetch(ctx context.Context, issuer string, from accessfile.Source) ([]byte, error) {
	if from.JWKSFile != "" {
		return os.ReadFile(from.JWKSFile)
	}
	client, err := newClient(from)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	address := from.JWKSURL
	if address == "" {
		if address, err = client.discover(ctx, issuer); err != nil {
			return nil, err
		}
	}
	return client.get(ctx, address)
}

// client reads from the servers of one issuer. It sends the credential to the server that is configured, only.
type client struct {
	http       *http.Client
	credential string
	host       string
}

func newClient(from accessfile.Source) (*client, error) {
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
	c := &client{http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true},
		// A redirect could lead to a server that is not the issuer's.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if from.BearerTokenFile != "" {
		text, err := os.ReadFile(from.BearerTokenFile) // it is renewed
		if err != nil {
			return nil, err
		}
		c.credential = strings.TrimSpace(string(text))
	}
	return c, nil
}

// discover finds the URL of the key set by OpenID Connect Discovery.
func (c *client) discover(ctx context.Context, issuer string) (string, error) {
	text, err := c.get(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var found struct {
		Issuer string `json:"issuer"`
		URL    string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return "", fmt.Errorf("the discovery document can't be read: %w", err)
	}
	if found.Issuer != issuer {
		return "", fmt.Errorf("the discovery document is of the issuer %.200q, not of %q", found.Issuer, issuer)
	}
	if err := accessfile.CheckURL(found.URL); err != nil {
		return "", fmt.Errorf("jwks_uri in the discovery document: %w", err)
	}
	return found.URL, nil
}

// get reads a document. The first server that is asked is the configured one.
func (c *client) get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the URL of the key set can't be used")
	}
	if c.host == "" {
		c.host = origin(request.URL)
	}
	if c.credential != "" && origin(request.URL) == c.host {
		request.Header.Set("Authorization", "Bearer "+c.credential)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", address, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, bytesMax+1))
	if err == nil && len(text) > bytesMax {
		err = fmt.Errorf("%s answered with more than %d bytes", address, bytesMax)
	}
	return text, err
}

func origin(address *url.URL) string { return address.Scheme + "://" + address.Host }
