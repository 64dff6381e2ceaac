package endpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencegate/fencegate/lockclient/api"
)

// Address returns the client's address without its port: that of the connection, since any client can send a header.
// If the connection comes from a proxy that the operator trusts, it is the last address in X-Forwarded-For that is not
// such a proxy's. A client may have written the ones before it.
func (s *Server) Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if len(s.TrustedProxies) == 0 || !s.trusted(host) {
		return host
	}
	for _, header := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
		for _, hop := range slices.Backward(strings.Split(header, ",")) {
			hop = strings.TrimSpace(hop)
			address, err := netip.ParseAddr(hop)
			if err != nil {
				return host
			}
			host = address.Unmap().WithZone("").String()
			if !s.trusted(host) {
				return host
			}
		}
	}
	return host
}

func (s *Server) trusted(host string) bool {
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	return err == nil && slices.ContainsFunc(s.TrustedProxies, func(proxies netip.Prefix) bool {
		return proxies.Contains(address)
	})
}

// Browsers add cookies, client certificates and passwords (Authorization: Basic, for a proxy) to every request, even if
// a page of another site causes it. So the gateway judges a request without Authorization: Bearer by its origin.

// Names of the cookie with a credential. Browsers accept the first over TLS only, and from no other host.
const (
	cookieName          = "__Host-fencegate"
	CookieNamePlaintext = "fencegate"
)

// admitBrowser refuses a browser's request that a page of another origin has caused. It moves the credential of the
// cookie to the header Authorization, where authenticators look for it, unless that has one.
func (s *Server) admitBrowser(r *http.Request) error {
	if slices.ContainsFunc(r.Header["Authorization"], isBearer) {
		return nil
	}
	if s.CrossOrigin.Check(r) != nil {
		return OtherOrigin()
	}
	if s.Auth == nil {
		return nil
	}
	cookies := r.CookiesNamed(CookieNameFor(s.IsSecure(r)))
	if len(cookies) == 0 {
		return nil
	}
	if FromElsewhere(r) {
		return OtherOrigin()
	}
	r.Header.Del("Authorization")
	for _, cookie := range cookies { // several are as bad as several headers
		r.Header.Add("Authorization", BearerScheme+cookie.Value)
	}
	return nil
}

// FromElsewhere reports whether, by the browser's headers, a page of another origin caused the request. Older browsers
// send no such header.
func FromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: the user has typed the address, or chosen a bookmark
		return false
	}
	return true
}

// BearerScheme begins the header Authorization.
const BearerScheme = "Bearer "

func isBearer(authorization string) bool {
	return len(authorization) >= len(BearerScheme) && strings.EqualFold(authorization[:len(BearerScheme)], BearerScheme)
}

// OtherOrigin is the answer to a request that a page of another site has sent.
func OtherOrigin() *api.Problem {
	return Problem(http.StatusForbidden, api.CodeForbidden,
		"A page of another origin has sent this request. If it was a page of this gateway, a proxy has changed the Host.")
}

// IsSecure reports whether the client speaks TLS, with the gateway or with a trusted proxy.
func (s *Server) IsSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && s.trusted(host) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// CookieNameFor returns the name of the cookie that has the credential.
func CookieNameFor(secure bool) string {
	if secure {
		return cookieName
	}
	return CookieNamePlaintext
}

var (
	// ErrClientGone says that the client has left: it gets no answer.
	ErrClientGone = errors.New("the client has left")
)

// Attended returns a context that ends when the client leaves, with ErrDraining when the gateway drains, and with
// an *api.Problem when the credential ends. It is for waiting only: it would cut off a statement.
func (s *Server) Attended(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.Staying(), func() { end(s.whyLeave()) })
	unwatch := s.watchClient(r, end)
	return ctx, func() {
		stop()
		unwatch()
		end(nil)
	}
}

// hangUpInterval is how often the connection and the credential of a client that waits are checked.
const hangUpInterval = time.Second

// watchClient ends the wait of an HTTP/1.1 client that has closed or half-closed its connection, and of any client
// whose credential has ended, until the returned function is called. Between two checks it has a timer and no goroutine:
// thousands of clients may wait.
//
// net/http reads one byte ahead while a handler runs. It notices the end of a connection, but not an end after another
// byte: a pipelined request, or an empty line. The gateway can't read instead of net/http without taking over the
// connection. So it asks the kernel for the state of the socket, which consumes no byte. A half-closed connection
// counts as closed, as for net/http: a FIN does not distinguish the two. Over HTTP/2, net/http reads the connection all
// the time, so no check is needed.
func (s *Server) watchClient(r *http.Request, end context.CancelCauseFunc) (stop func()) {
	socket := socketOf(r)
	if socket == nil && s.Auth == nil {
		return func() {}
	}
	var mu sync.Mutex
	var next *time.Timer // nil: watching has ended
	mu.Lock()
	defer mu.Unlock()
	next = time.AfterFunc(s.HangUpInterval, func() {
		mu.Lock()
		defer mu.Unlock()
		if next == nil {
			return
		}
		if socket != nil && isHungUp(socket) {
			end(nil)
		} else if err := s.StillAccepted(r); err != nil {
			end(err)
		} else {
			next.Reset(s.HangUpInterval)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		next.Stop()
		next = nil
	}
}

// socketOf returns the socket of a request over HTTP/1.1, otherwise nil.
func socketOf(r *http.Request) syscall.RawConn {
	connection := connectionOf(r)
	if connection == nil || r.ProtoMajor != 1 {
		return nil
	}
	accepted, ok := connection.socket.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := accepted.SyscallConn()
	if err != nil {
		return nil
	}
	return socket
}

// Work returns the context of the work on a request. The context outlives the client's connection: the gateway finishes
// work that has begun, and cutting off a statement would cost a connection to the database. It ends after the
// RequestTimeout (see sharedDeadline), or with the server. Its only value is the span of the request.
func (s *Server) Work(r *http.Request) context.Context { return s.withSpan(s.deadline.context(), r) }

// sharedDeadline makes contexts that end after a timeout. Requests that begin within a sixteenth of the timeout share
// one, and have up to that much longer. A context for each request would cost as much as its answer.
type sharedDeadline struct {
	parent  context.Context
	timeout time.Duration
	newest  atomic.Pointer[deadlineContext]
}

type deadlineContext struct {
	context.Context

	cancel context.CancelFunc // called only if the context is not used
	until  time.Time          // requests that begin later need another context
}

// within sets the parent of the contexts and the timeout.
func (d *sharedDeadline) within(parent context.Context, timeout time.Duration) {
	d.parent, d.timeout = parent, timeout
}

// context returns the context of a request that begins now.
func (d *sharedDeadline) context() context.Context {
	now := time.Now()
	newest := d.newest.Load()
	if newest != nil && now.Before(newest.until) {
		return newest.Context
	}
	slice := d.timeout / 16
	ctx, cancel := context.WithTimeout(d.parent, d.timeout+slice)
	made := &deadlineContext{ctx, cancel, now.Add(slice)}
	if !d.newest.CompareAndSwap(newest, made) { // the other goroutine's is as good
		cancel()
		return d.newest.Load().Context
	}
	return ctx
}

// EndWork ends the work that is under way.
func (s *Server) EndWork() {
	if work := s.deadline.newest.Swap(nil); work != nil {
		work.cancel()
	}
}
