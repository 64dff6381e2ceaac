// Package network is what is between a client and a server, and can fail: for the demo, and for tests.
package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Relay passes TCP connections on to a server, until it holds what they carry or cuts them.
type Relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	network string
	target  string
	state   state
	arrived chan struct{} // closed once something is held; nil: that has happened
	open    map[net.Conn]struct{}
}

type state int

const (
	passes state = iota
	holds        // what arrives is kept
	cuts         // connections are closed, what was held is lost
)

// NewRelay returns one that passes on to a target: "tcp" and an address, or "unix" and a path.
func NewRelay(ctx context.Context, network, target string) (*Relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, network: network, target: target, open: map[net.Conn]struct{}{}}
	r.changed = sync.NewCond(&r.mu)
	r.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.carry(ctx, client) })
		}
	})
	return r, nil
}

// Address is where clients connect: a port of the loopback interface.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Hold keeps what arrives from now on, in both directions, as a network without packets does: no connection breaks. The
// channel is closed when something has arrived.
func (r *Relay) Hold() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.arrived = holds, make(chan struct{})
	return r.arrived
}

// Pass passes on what was held, and what arrives from now on.
func (r *Relay) Pass() { r.change(func() { r.state = passes }) }

// Cut closes all connections and refuses new ones. What was held is lost.
func (r *Relay) Cut() { r.change(r.cutLocked) }

// PointAt cuts the connections, and passes new ones on to another target of the same network.
func (r *Relay) PointAt(target string) {
	r.change(func() {
		r.cutLocked()
		r.state, r.target = passes, target
	})
}

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.Cut()
	r.running.Wait()
}

func (r *Relay) change(how func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how()
	r.changed.Broadcast()
}

func (r *Relay) cutLocked() {
	r.state = cuts
	for conn := range r.open {
		_ = conn.Close()
	}
	clear(r.open)
}

// carry passes one connection on until both sides have ended it.
func (r *Relay) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	network, target := r.network, r.target
	r.mu.Unlock()
	server, err := (&net.Dialer{}).DialContext(ctx, network, target)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.add(client, server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { r.copy(client, server) })
	r.copy(server, client)
	back.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, client)
	delete(r.open, server)
}

func (r *Relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == cuts {
		return false
	}
	for _, conn := range conns {
		r.open[conn] = struct{}{}
	}
	return true
}

// copy passes on what one side sends, and then that it has ended.
func (r *Relay) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !r.await(from, n) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil {
			err = io.ErrClosedPipe
		}
		if err != nil {
			break
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// await waits while what has arrived is held. It returns false if the connection was cut.
func (r *Relay) await(from net.Conn, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.state == holds {
		if n > 0 && r.arrived != nil {
			close(r.arrived)
			r.arrived = nil
		}
		r.changed.Wait()
	}
	_, open := r.open[from]
	return open
}

// tried counts the ports that FindAddress has tried. Each is tried once: two tests of a process never get the same one.
var tried atomic.Int32

// first differs between processes that run at the same time, by more than the ports that most of them try.
var first = int32(20000 + os.Getpid()*97%10000)

// reserved are the UDP ports of the addresses, which this process keeps until it ends: so another process that looks for
// an address passes them over, also while the program under test has not started yet. Those programs use TCP.
var reserved sync.Map

// FreeAddress is FindAddress for a test.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := FindAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// FindAddress is for programs that can't choose a free port themselves, or that must keep theirs over a restart. It
// returns an unused address below the system's ephemeral ports, which neither a connection nor another listener is given
// by chance.
func FindAddress(ctx context.Context) (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", first+tried.Add(1))
		reservation, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
		if err != nil {
			continue
		}
		if listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			_ = listener.Close()
			reserved.Store(address, reservation)
			return address, nil
		}
		_ = reservation.Close()
	}
	return "", errors.Join(errors.New("found no free port in 100 attempts"), ctx.Err())
}

// Fault is what happens to one call.
type Fault string

// The faults.
const (
	None          Fault = ""
	RequestLost   Fault = "request_lost"   // the gateway never gets it
	AnswerLost    Fault = "answer_lost"    // the gateway executes it, and its answer is lost
	AnswerCut     Fault = "answer_cut"     // half of the answer arrives
	BadGateway    Fault = "bad_gateway"    // the gateway executes it, and a proxy answers instead
	RequestHeld   Fault = "request_held"   // it waits, and then continues
	AnswerHeld    Fault = "answer_held"    // its answer does
	AnswerEndless Fault = "answer_endless" // it arrives without its length, and does not end
	Page          Fault = "page"           // the gateway never gets it, and a proxy answers 200 with a page
	Redirect      Fault = "redirect"       // the same with a redirect to where it was sent
	Unavailable   Fault = "unavailable"    // the gateway refuses it for now
	RateLimited   Fault = "rate_limited"   // the gateway refuses it for now, since the caller sends too much
)

// pass passes one call on to the gateway, with a fault. hold returns when a held call shall continue.
func pass(w http.ResponseWriter, r *http.Request, gatewayURL string, fault Fault, hold func(*http.Request)) {
	body, err := io.ReadAll(r.Body)
	abortOn(err)
	switch fault {
	case RequestLost:
		panic(http.ErrAbortHandler)
	case RequestHeld:
		hold(r)
	case Page, Redirect, Unavailable, RateLimited:
		replace(w, r, fault)
		return
	}
	request, err := http.NewRequestWithContext( //nolint:gosec // the host is the gateway's
		r.Context(), r.Method, gatewayURL+r.URL.RequestURI(), bytes.NewReader(body))
	abortOn(err)
	request.Header = r.Header.Clone()
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	abortOn(err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	abortOn(err)
	switch fault {
	case AnswerLost:
		panic(http.ErrAbortHandler)
	case AnswerHeld:
		hold(r)
	case BadGateway:
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	if fault == AnswerEndless {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(answer.StatusCode)
	if fault == AnswerCut {
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text)
	if fault == AnswerEndless {
		abortOn(http.NewResponseController(w).Flush())
		hold(r)
	}
}

// replace answers instead of the gateway.
func replace(w http.ResponseWriter, r *http.Request, fault Fault) {
	switch fault {
	case Page:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<p>Sign in to the network")
	case Redirect:
		w.Header().Set("Location", r.RequestURI) // a client that follows it is answered
		w.WriteHeader(http.StatusTemporaryRedirect)
	case Unavailable:
		problem(w, http.StatusServiceUnavailable, `"code":"unavailable","outcome":"not_applied"`)
	case RateLimited:
		problem(w, http.StatusTooManyRequests, `"code":"rate_limited"`)
	}
}

func problem(w http.ResponseWriter, status int, fields string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"type":"about:blank","title":"Refused","status":`+strconv.Itoa(status)+
		`,"detail":"A fault of the test.","retryable":true,`+fields+`}`)
}

func abortOn(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Harm is what happens to the next calls whose paths end so, one fault each.
type Harm struct {
	Path   string  `json:"path"`
	Faults []Fault `json:"faults"`
	// Always repeats the faults.
	Always bool `json:"always"`
}

// Proxy passes calls on to a gateway, as an http.Handler, and harms some of them.
type Proxy struct {
	gatewayURL string
	released   chan struct{}
	closed     chan struct{}

	mu    sync.Mutex
	harms []Harm   // the newest one that has a fault for a call decides
	paths []string // of the calls
}

// NewProxy returns one that harms nothing yet.
func NewProxy(gatewayURL string) *Proxy {
	return &Proxy{gatewayURL: gatewayURL, released: make(chan struct{}), closed: make(chan struct{})}
}

// Harm replaces the harm to calls of its path, and forgets those that came.
func (p *Proxy) Harm(harm Harm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.harms = append(slices.DeleteFunc(p.harms, func(old Harm) bool { return old.Path == harm.Path }), harm)
	p.paths = slices.DeleteFunc(p.paths, func(path string) bool { return strings.HasSuffix(path, harm.Path) })
}

// Calls returns the number of calls whose paths end so, since the last harm to them.
func (p *Proxy) Calls(suffix string) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, path := range p.paths {
		if strings.HasSuffix(path, suffix) {
			count++
		}
	}
	return count
}

// Release lets one held call continue. It waits for the call until ctx ends.
func (p *Proxy) Release(ctx context.Context) {
	select {
	case p.released <- struct{}{}:
	case <-ctx.Done():
	}
}

// Close ends all held calls.
func (p *Proxy) Close() { close(p.closed) }

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pass(w, r, p.gatewayURL, p.next(r.URL.EscapedPath()), p.hold)
}

// next notes a call, and returns its fault.
func (p *Proxy) next(path string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths = append(p.paths, path)
	for i := range slices.Backward(p.harms) {
		harm := &p.harms[i]
		if !strings.HasSuffix(path, harm.Path) || len(harm.Faults) == 0 {
			continue
		}
		fault := harm.Faults[0]
		harm.Faults = slices.Clone(harm.Faults[1:])
		if harm.Always {
			harm.Faults = append(harm.Faults, fault)
		}
		return fault
	}
	return None
}

// hold returns when the call is released.
func (p *Proxy) hold(r *http.Request) {
	select {
	case <-p.released:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-p.closed:
		panic(http.ErrAbortHandler)
	}
}
