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
)

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
