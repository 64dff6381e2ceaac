package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
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

// Client calls gateways of one database. It is safe for concurrent use. Make one and keep it: it pools connections,
// remembers which gateway works, and owns what runs in the background.
type Client struct {
	http *http.Client
	// pool is the client's own, and nil where it was given one.
	pool *http.Transport

	gateways  []gateway
	failover  []string
	preferred atomic.Int64

	owner     string
	userAgent string
	// headers, if set, adds to the headers of a request.
	headers func(ctx context.Context, header http.Header)

	answerBytesMax int64
	answerTimeout  time.Duration

	retries    retryReport
	background background
}

// gateway is where one is reached.
type gateway struct {
	// base has no slash at its end; shown is the same without its password.
	base, shown string
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

// WithHeaders sets what is called before each request is sent, of whatever kind, each try, heartbeat and stream among
// them, to add headers to it: the trace that the caller is in (traceparent), or what a proxy asks for. The headers
// that the client sets itself can't be changed by it.
//
// ctx has the values of the ctx that the call was made with. A heartbeat belongs to no call: there ctx has no values.
// add is called by many goroutines at once, and must not wait.
func WithHeaders(add func(ctx context.Context, header http.Header)) Option {
	return func(c *Client) { c.headers = add }
}

// WithAnswerBytesMax bounds the body of an answer, and so a value that Get reads into memory. Default 256 MiB; what
// is below 1 is taken for the default.
func WithAnswerBytesMax(limit int64) Option {
	return func(c *Client) {
		if limit > 0 {
			c.answerBytesMax = limit
		}
	}
}

// WithFailover names more gateways before the same database. A call that was certainly not applied goes on to the
// next one; a call whose outcome is unknown does so only if it may be sent twice: see [API]. The client stays with a
// gateway that works.
func WithFailover(baseURLs ...string) Option {
	return func(c *Client) { c.failover = append(c.failover, baseURLs...) }
}

// WithOwner sets the owner of leases and sessions, which others see as the holder: 1 to 256 bytes. Two processes
// should not share one. Default: host:pid:random, new in every client.
func WithOwner(ownerID string) Option {
	return func(c *Client) { c.owner = ownerID }
}

// WithAnswerTimeout bounds how long one gateway may take to answer, beyond the time that it was asked to wait for a
// lock, where ctx has no deadline or where another gateway could be asked instead. Default 30 s; what is not positive
// is taken for the default.
func WithAnswerTimeout(limit time.Duration) Option {
	return func(c *Client) {
		if limit > 0 {
			c.answerTimeout = limit
		}
	}
}

// New makes a client of the gateway at baseURL, such as "http://127.0.0.1:8080" or, behind a proxy,
// "https://example.net/fencegate". Nothing is sent yet. It returns an error if a URL is not an absolute http or https
// URL without query and fragment.
//
// A call whose ctx has no deadline gives up after 30 seconds (see WithAnswerTimeout), plus the time that it asked to
// wait for a lock.
func New(baseURL string, opts ...Option) (*Client, error) {
	client := &Client{
		userAgent:      defaultUserAgent,
		answerBytesMax: defaultAnswerBytesMax,
		answerTimeout:  answerTimeout,
	}
	for _, opt := range opts {
		opt(client)
	}
	for _, each := range append([]string{baseURL}, client.failover...) {
		base, err := parseBase(each)
		if err != nil {
			return nil, err
		}
		client.gateways = append(client.gateways, gateway{
			base: strings.TrimRight(base.String(), "/"), shown: strings.TrimRight(base.Redacted(), "/"),
		})
	}
	if client.owner == "" {
		client.owner = processOwner()
	}
	client.background.start()
	if client.http == nil {
		client.pool = newTransport()
		client.http = &http.Client{Transport: client.pool}
	}
	withoutRedirects := *client.http
	withoutRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.http = &withoutRedirects
	return client, nil
}

// API gives the calls of the HTTP API, one method a path.
func (c *Client) API() *API { return &API{client: c} }

// Owner is the owner of this client's leases, unless one says otherwise.
func (c *Client) Owner() string { return c.owner }

// Close stops what the client runs in the background, heartbeats and watches, and waits for its end: no goroutine of
// the client outlives it. Contexts of leases, sessions and leaderships are cancelled, with the cause [ErrClosed].
// Nothing is released: release first, or leave it to the TTL. Connections that no call is using are closed; those of
// a client that was given by WithHTTPClient are left alone.
//
// A closed client grants nothing new: Acquire, NewSession, Campaign and the watches return ErrClosed. What was
// granted can still be released, written under and read; such a call connects anew.
func (c *Client) Close() {
	c.background.stop()
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
