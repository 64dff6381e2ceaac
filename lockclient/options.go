package lockclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// LeaseOption configures Acquire, Do, Elect or NewSession. An option that does not apply there is refused as
// ErrInvalidRequest.
type LeaseOption func(*leaseConfig)

// waitForCtx is a wait that only ctx ends.
const waitForCtx = time.Duration(-1)

type leaseConfig struct {
	owner    string
	ttl      *time.Duration
	metadata any
	mode     string
	scope    string
	wait     time.Duration
	session  *Session
	beat     heartbeatConfig
}

// WithTTL sets how long the lease or session lasts without a renewal: 100 ms to 24 h, in whole milliseconds. Default
// 30 s.
func WithTTL(ttl time.Duration) LeaseOption {
	return func(c *leaseConfig) { c.ttl = &ttl }
}

// WithMetadata sets what others see beside the lease: any JSON object of at most 4096 bytes.
func WithMetadata(metadata any) LeaseOption {
	return func(c *leaseConfig) { c.metadata = metadata }
}

// WithLeaseOwner sets the owner of this lease, instead of the client's.
func WithLeaseOwner(ownerID string) LeaseOption {
	return func(c *leaseConfig) { c.owner = ownerID }
}

// Shared makes a lease that many may hold at once. It can't write.
func Shared() LeaseOption {
	return func(c *leaseConfig) { c.mode = "shared" }
}

// Subtree makes a lease on the name and all names below it. It may write to each resource there, see OnResource.
func Subtree() LeaseOption {
	return func(c *leaseConfig) { c.scope = "subtree" }
}

// WithWait waits in the lock's queue for up to this long; 0 is one try. A gateway is asked to wait for at most 10
// minutes, and for less than ctx has left. A longer wait sends another request, which begins at the end of the queue.
func WithWait(wait time.Duration) LeaseOption {
	return func(c *leaseConfig) { c.wait = max(0, wait) }
}

// InSession makes a lease in a session: it lasts as long as the session, and has no TTL and no renewals of its own. Its
// owner is the session's.
func InSession(session *Session) LeaseOption {
	return func(c *leaseConfig) { c.session = session }
}

// WithoutHeartbeat leaves the renewals to the caller ([Lease.Renew]). Otherwise they are sent in the background.
func WithoutHeartbeat() LeaseOption {
	return func(c *leaseConfig) { c.beat.off = true }
}

// HeartbeatEvery sets the longest time between two renewals. The default, and the maximum, is a third of the TTL.
func HeartbeatEvery(interval time.Duration) LeaseOption {
	return func(c *leaseConfig) { c.beat.every = interval }
}

// OnHeartbeatError sets a function that is called after every failed heartbeat, by the heartbeat's goroutine: keep it
// short, and don't call Close in it. Failed heartbeats are retried until the lease is lost. The last call has an error
// that matches ErrLeaseLost.
func OnHeartbeatError(failed func(error)) LeaseOption {
	return func(c *leaseConfig) { c.beat.onError = failed }
}

func (c *Client) leaseConfig(opts []LeaseOption) leaseConfig {
	config := leaseConfig{owner: c.owner}
	for _, opt := range opts {
		opt(&config)
	}
	if config.session != nil {
		config.owner = config.session.Owner()
	}
	return config
}

// lastingConfig is that of Do and Elect: by default they wait until ctx ends.
func (c *Client) lastingConfig(opts []LeaseOption) leaseConfig {
	return c.leaseConfig(append([]LeaseOption{func(config *leaseConfig) { config.wait = waitForCtx }}, opts...))
}

// check refuses options that exclude each other.
func (c *leaseConfig) check(op string) error {
	switch {
	case c.ttl != nil && *c.ttl%time.Millisecond != 0:
		return refused(op, api.CodeInvalidRequest, "the TTL "+c.ttl.String()+" must be whole milliseconds")
	case c.session != nil && c.ttl != nil:
		return refused(op, api.CodeInvalidRequest, "a lease in a session has no TTL of its own: leave out WithTTL")
	case c.beat.off && (c.beat.every != 0 || c.beat.onError != nil):
		return refused(op, api.CodeInvalidRequest, "HeartbeatEvery and OnHeartbeatError contradict WithoutHeartbeat")
	case c.session != nil && (c.beat.every != 0 || c.beat.onError != nil):
		return refused(op, api.CodeInvalidRequest,
			"a lease in a session has no heartbeat of its own: leave out HeartbeatEvery and OnHeartbeatError")
	}
	return nil
}

func (c *leaseConfig) ttlMS() *int64 {
	if c.ttl == nil {
		return nil
	}
	return pointer(c.ttl.Milliseconds())
}

func (c *leaseConfig) sessionID() *string {
	if c.session == nil {
		return nil
	}
	return pointer(c.session.ID())
}

// pointer is new(value), of which Go 1.25 has only the form for types.
func pointer[T any](value T) *T { return &value }

// WithTLS sets how the client connects to gateways at https URLs: the authority of their certificates (RootCAs), and
// its own certificate (Certificates or GetClientCertificate). New refuses it beside WithHTTPClient.
func WithTLS(config *tls.Config) Option {
	return func(c *Client) { c.tls = config }
}

// WithToken sets the credential: an API key, or a token of your identity provider. Each request carries it in the
// header Authorization. It is sent to the configured gateways only, since the client follows no redirects, and no error
// or log has it in it. A proxy of the environment (HTTP_PROXY) is not used for gateways at http URLs then, since it could
// read the credential. New refuses an empty one, or one with spaces or control characters.
func WithToken(token string) Option {
	return func(c *Client) { c.credential = &credential{token: token} }
}

// WithTokenFile reads the credential from a file, and reads it again when it changes: within a second, before the next
// request. Space around the credential is ignored. A file that can't be read, or is empty, keeps the last credential in
// use; New refuses such a file.
func WithTokenFile(path string) Option {
	return func(c *Client) { c.credential = &credential{path: path} }
}

// tokenAge is how long the content of a token file is used before it is read again.
const tokenAge = time.Second

// credential is the bearer token of all requests.
type credential struct {
	path string // of its file; "" if it does not change

	mu     sync.Mutex
	token  string
	readAt time.Time
}

var errNoToken = errors.New("it must be one word of printable ASCII characters")

// open checks the credential, and reads it the first time.
func (c *credential) open() error {
	if c.path == "" {
		if !isToken(c.token) {
			return fmt.Errorf("lockclient: the token is unusable: %w", errNoToken)
		}
		return nil
	}
	if err := c.read(); err != nil {
		return fmt.Errorf("lockclient: the token file is unusable: %w", err)
	}
	return nil
}

// authorize adds the credential to a request.
func (c *credential) authorize(header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path != "" && time.Since(c.readAt) >= tokenAge {
		_ = c.read() // otherwise the last one stays in use
	}
	header.Set("Authorization", "Bearer "+c.token)
}

func (c *credential) read() error {
	c.readAt = time.Now()
	text, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	if !isToken(token) {
		return fmt.Errorf("%s: %w", c.path, errNoToken)
	}
	c.token = token
	return nil
}

// isToken says that a header can carry the text, and that it is one word.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
