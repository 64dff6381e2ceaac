// Package oidc asks the servers of an issuer of tokens: where its keys and endpoints are (OpenID Connect Discovery), and
// for an ID token (authorization code flow with PKCE, RFC 6749 and RFC 7636).
package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	c := &Client{http: &http.Client{
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

// Get reads a document.
func (c *Client) Get(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the URL of the document can't be used")
	}
	if c.host == "" {
		c.host = origin(request.URL)
	}
	if c.credential != "" && origin(request.URL) == c.host {
		request.Header.Set("Authorization", "Bearer "+c.credential)
	}
	status, text, err := c.do(request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s answered %d", address, status)
	}
	return text, err
}

func (c *Client) do(request *http.Request) (status int, text []byte, err error) {
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, bytesMax+1))
	if err == nil && len(text) > bytesMax {
		err = fmt.Errorf("%s answered with more than %d bytes", request.URL, bytesMax)
	}
	return response.StatusCode, text, err
}

func origin(address *url.URL) string { return address.Scheme + "://" + address.Host }
