package lockclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// answerTimeout limits a call whose ctx has no deadline, beyond the time that it asked to wait for a lock.
	answerTimeout = 30 * time.Second

	dialTimeout        = 5 * time.Second
	idleTimeout        = 90 * time.Second
	idlePerHostMax     = 64
	defaultUserAgent   = "fencegate-lockclient"
	answerHeadBytesMax = 64 << 10

	// defaultAnswerBytesMax is the largest value that a gateway can be configured to store.
	defaultAnswerBytesMax = 256 << 20
)

// Client calls the gateways of one database. It is safe for concurrent use. Make one and keep it: it pools connections,
// remembers which gateway works, and owns everything that runs in the background.
//
// # Failures
//
//   - An answer is lost. The client resends the request. An acquire carries a request_id and a write its number, so
//     there is no second lease and no second write. Renewals and releases may be repeated by their nature.
//   - Attempts that fail and are retried are reported to the hook of [WithRetryHook], and logged as warnings
//     ([WithLogger]).
//   - A gateway dies or freezes. Calls continue at the next of [WithFailover]: at once if nothing was applied, and
//     after an unknown outcome only if they may be repeated. A waiter loses its place in the queue; a holder keeps its
//     lease.
//   - All gateways are unreachable. Heartbeats are retried until the lease's validity ends, writes and releases for some
//     30 seconds or until ctx ends. The error is [ErrUnavailable]. If it also matches [ErrOutcomeUnknown], the change may
//     have been applied.
//   - The process or its machine is paused. It finds a canceled [Lease.Context] when it wakes; its writes are
//     [ErrTokenStale] if another holder has the lock. Both are [ErrNotHolder].
//   - The process dies. Its leases and sessions expire with their TTLs, and the next waiters are granted the locks.
//   - The caller cancels an acquire, or no answer arrives. If a lease was granted, the client releases it in the
//     background, as far as it can.
type Client struct {
	http *http.Client
	// pool is the client's own; nil with WithHTTPClient.
	pool *http.Transport
	tls  *tls.Config
	// credential, if set, authorizes each request.
	credential *credential

	gateways  []gateway
	failover  []string
	preferred atomic.Int64

	owner     string
	userAgent string
	// headers, if set, adds headers to a request.
	headers func(ctx context.Context, header http.Header)

	answerBytesMax int64
	answerTimeout  time.Duration

	newest     newestTokens
	retries    retryReport
	background background
}

// gateway is the address of one gateway.
type gateway struct {
	// base has no slash at its end; shown is the same without its password.
	base, shown string
}

// Option configures a Client.
type Option func(*Client)

// WithHTTPClient sets the client that sends the requests. A copy of it is used, which follows no redirects: a
// redirected PUT would arrive as a GET, and the credential at another server.
func WithHTTPClient(httpClient *http.Client) Option {
	return func(c *Client) { c.http = httpClient }
}

// WithUserAgent sets the User-Agent header, which identifies the program in the gateway's logs.
func WithUserAgent(userAgent string) Option {
	return func(c *Client) { c.userAgent = userAgent }
}

// WithHeaders sets a function that adds headers to each request before it is sent, retries, heartbeats and streams
// among them: the trace of the caller (traceparent), or headers that a proxy needs. It can't change the headers that
// the client sets itself.
//
// ctx has the values of the call's ctx. A heartbeat belongs to no call: its ctx has no values. Many goroutines call
// add at once, and it must not block.
func WithHeaders(add func(ctx context.Context, header http.Header)) Option {
	return func(c *Client) { c.headers = add }
}

// WithAnswerBytesMax bounds the body of an answer in bytes, and so a value that Get reads into memory. Default 256 MiB,
// also for a limit below 1.
func WithAnswerBytesMax(limit int64) Option {
	return func(c *Client) {
		if limit > 0 {
			c.answerBytesMax = limit
		}
	}
}

// WithFailover names more gateways of the same database. A call that was certainly not applied continues at the next
// one. A call whose outcome is unknown does so only if it may be sent twice: see [API]. The client stays with a
// gateway that works.
func WithFailover(baseURLs ...string) Option {
	return func(c *Client) { c.failover = append(c.failover, baseURLs...) }
}

// WithOwner sets the owner of leases and sessions, which others see as the holder: 1 to 256 bytes. Two processes should
// not share one. Default: host:pid:random, new in every client.
func WithOwner(ownerID string) Option {
	return func(c *Client) { c.owner = ownerID }
}

// WithAnswerTimeout bounds the time of one gateway for its answer, beyond the time that it was asked to wait for a
// lock. It applies if ctx has no deadline, and if another gateway is left to ask. Default 30 s, also for a limit that
// is not positive.
func WithAnswerTimeout(limit time.Duration) Option {
	return func(c *Client) {
		if limit > 0 {
			c.answerTimeout = limit
		}
	}
}

// New makes a client of the gateway at baseURL, such as "http://127.0.0.1:8080" or, behind a proxy,
// "https://example.net/fencegate". It sends nothing. It returns an error if a URL is not an absolute http or https URL
// without query and fragment, or if the credential is unusable.
//
// A call whose ctx has no deadline ends after 30 seconds (see WithAnswerTimeout), plus the time that it asked to wait
// for a lock.
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
	if client.credential != nil {
		if err := client.credential.open(); err != nil {
			return nil, err
		}
	}
	if client.http == nil {
		client.pool = newTransport(client.tls)
		client.http = &http.Client{Transport: client.pool}
	} else if client.tls != nil {
		return nil, errors.New("lockclient: WithTLS has no effect beside WithHTTPClient: set it in the transport")
	}
	client.owner = cmp.Or(client.owner, processOwner())
	client.background.start()
	withoutRedirects := *client.http
	withoutRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.http = &withoutRedirects
	return client, nil
}

// API returns the calls of the HTTP API, one method per path.
func (c *Client) API() *API { return &API{client: c} }

// Owner returns the owner of this client's leases, unless an option sets another.
func (c *Client) Owner() string { return c.owner }

// Close stops everything that the client runs in the background, heartbeats and watches among them, and waits for its
// end: no goroutine of the client is left. Contexts of leases and sessions are canceled with the cause
// [ErrClosed]. Close releases nothing: release before, or let the TTLs end the leases. It closes idle connections,
// but not those of a client that was given by WithHTTPClient.
//
// A closed client grants nothing new: Acquire, Elect, NewSession and the watches return ErrClosed. What was
// granted can still be released, written under and read; such a call opens a new connection.
func (c *Client) Close() {
	c.background.stop()
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
}

func parseBase(baseURL string) (*url.URL, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		// The text of a url.Error contains the URL, which may contain a password.
		return nil, fmt.Errorf("lockclient: the gateway's URL can't be read: %w", errors.Unwrap(err))
	case (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return nil, fmt.Errorf("lockclient: the gateway's URL %q must be like http://host:port", base.Redacted())
	case base.RawQuery != "" || base.ForceQuery || base.Fragment != "":
		return nil, fmt.Errorf("lockclient: the gateway's URL %q must have no query and no fragment", base.Redacted())
	}
	return base, nil
}

// newTransport speaks HTTP/1.1, also by TLS. HTTP/2 would send all requests over one connection: one that is dead
// would take every call with it.
func newTransport(config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		Proxy:                  proxyOf,
		DialContext:            dialer.DialContext,
		Protocols:              new(http.Protocols),
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    idlePerHostMax,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: answerHeadBytesMax,
	}
	transport.Protocols.SetHTTP1(true)
	if transport.TLSClientConfig != nil {
		transport.TLSClientConfig.NextProtos = nil // the caller's may offer HTTP/2
	}
	return transport
}

// proxyOf returns the proxy that the environment names for a request. There is none for a request over plain http with a
// credential: the proxy could read it. By https it relays what is encrypted.
func proxyOf(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "http" && r.Header.Get("Authorization") != "" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

const hostBytesMax = 128

// processOwner names the host and the process, and is unique.
func processOwner() string {
	host, _ := os.Hostname()
	host = cmp.Or(host, "localhost")
	host = host[:min(len(host), hostBytesMax)]
	return host + ":" + strconv.Itoa(os.Getpid()) + ":" + rand.Text()[:10]
}

// ErrClosed says that the client is closed. It is the cause of the contexts that end with the client.
var ErrClosed = errors.New("the client is closed")

// background owns all goroutines of a client. None starts after stop, and stop waits for those that run.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	// mu keeps work from starting while stop waits.
	mu      sync.Mutex
	running sync.WaitGroup

	// validities end with the client.
	validities group
}

func (b *background) start() {
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
}

// stop may be called again. A goroutine of the background must not call it.
func (b *background) stop() {
	b.mu.Lock()
	b.cancel(ErrClosed)
	b.mu.Unlock()
	b.validities.end(ErrClosed)
	b.running.Wait()
}

// run starts work, unless the client is closed. work must end soon after b.ctx.
func (b *background) run(work func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open() == nil {
		b.running.Go(work)
	}
}

// open returns ErrClosed after stop.
func (b *background) open() error { return context.Cause(b.ctx) }
