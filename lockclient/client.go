package lockclient

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// answerTimeout is what a call gets whose ctx has no deadline, beyond the time that it asked to wait for a lock.
	answerTimeout = 30 * time.Second

	dialTimeout        = 5 * time.Second
	idleTimeout        = 90 * time.Second
	idlePerHostMax     = 64
	defaultUserAgent   = "fencegate-lockclient"
	answerHeadBytesMax = 64 << 10

	// defaultAnswerBytesMax is as much as a gateway can be configured to store in one value.
	defaultAnswerBytesMax = 256 << 20
)

// Client calls one gateway, or several behind one address. It is safe for concurrent use. Make one and keep it: it pools
// connections.
type Client struct {
	http *http.Client
	// pool is the client's own, and nil where it was given one.
	pool *http.Transport

	base      string
	shownBase string
	userAgent string

	answerBytesMax int64
}

// Option changes how a Client is made.
type Option func(*Client)

// WithHTTPClient sets the client that requests are sent with, e.g. for TLS settings. A copy is used: redirects are not
// followed, whatever it says, since a redirected PUT would arrive as a GET.
func WithHTTPClient(httpClient *http.Client) Option {
	return func(c *Client) { c.http = httpClient }
}

// WithUserAgent sets the User-Agent header, by which the gateway's logs tell programs apart.
func WithUserAgent(userAgent string) Option {
	return func(c *Client) { c.userAgent = userAgent }
}

// WithAnswerBytesMax bounds the body of an answer, and so a value that Get reads into memory. Default 256 MiB; what is below
// 1 is taken for the default.
func WithAnswerBytesMax(limit int64) Option {
	return func(c *Client) {
		if limit > 0 {
			c.answerBytesMax = limit
		}
	}
}

// New makes a client of the gateway at baseURL, such as "http://127.0.0.1:8080" or, behind a proxy,
// "https://example.net/fencegate". Nothing is sent yet. It returns an error if baseURL is not an absolute http or https
// URL without query and fragment.
//
// A call whose ctx has no deadline gives up after 30 seconds, plus the time that it asked to wait for a lock.
func New(baseURL string, opts ...Option) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	client := &Client{
		base:      strings.TrimRight(base.String(), "/"),
		shownBase: strings.TrimRight(base.Redacted(), "/"),
		userAgent: defaultUserAgent,

		answerBytesMax: defaultAnswerBytesMax,
	}
	for _, opt := range opts {
		opt(client)
	}
	if client.http == nil {
		client.pool = newTransport()
		client.http = &http.Client{Transport: client.pool}
	}
	withoutRedirects := *client.http
	withoutRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.http = &withoutRedirects
	return client, nil
}

// Close closes the connections that no call is using. A client that was made with WithHTTPClient leaves that one's alone. A
// closed client still works; it connects anew.
func (c *Client) Close() {
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
}

func parseBase(baseURL string) (*url.URL, error) {
	base, err := url.Parse(baseURL)
	var parseErr *url.Error
	switch {
	case errors.As(err, &parseErr):
		// The text of a url.Error has the URL in it, which may carry a password.
		return nil, fmt.Errorf("lockclient: the gateway's URL can't be read: %w", parseErr.Err)
	case err != nil:
		return nil, fmt.Errorf("lockclient: the gateway's URL can't be read: %w", err)
	case (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return nil, fmt.Errorf("lockclient: the gateway's URL %q must be like http://host:port", base.Redacted())
	case base.RawQuery != "" || base.ForceQuery || base.Fragment != "":
		return nil, fmt.Errorf("lockclient: the gateway's URL %q must have no query and no fragment", base.Redacted())
	}
	return base, nil
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    idlePerHostMax,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: answerHeadBytesMax,
	}
}
