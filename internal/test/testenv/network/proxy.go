package network

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

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
