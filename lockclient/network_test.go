package lockclient_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/lockclient"
)

// fault is what happens to a call on its way.
type fault int

const (
	none        fault = iota
	requestLost       // the gateway never gets it
	answerLost        // the gateway executes it, and its answer is lost
	answerCut         // half of the answer arrives
	badGateway        // the gateway executes it, and a proxy answers instead
	requestHeld       // it waits for release, and then continues
	answerHeld        // its answer does
)

// losses are all ways to lose an answer.
var losses = []fault{answerLost, requestLost, answerCut, badGateway}

// network is a proxy in front of the shared gateway that harms calls.
type network struct {
	t        *testing.T
	released chan struct{}
	ended    chan struct{}

	mu     sync.Mutex
	faults []fault
	path   string
	calls  int
}

// lossy returns a client behind a network, and a name that no other test has.
func lossy(t *testing.T) (*network, *lockclient.Client, string) {
	t.Helper()
	_, lock := shared(t)
	n := &network{t: t, released: make(chan struct{}), ended: make(chan struct{})}
	url, _ := serve(t, n.serve)
	t.Cleanup(func() { close(n.ended) })
	return n, newClient(t, url), lock
}

// harm harms the next calls whose path ends so, by one fault each.
func (n *network) harm(path string, faults ...fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.path, n.faults, n.calls = path, faults, 0
}

// seen counts the calls since harm.
func (n *network) seen() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

func (n *network) await(calls int, what string) {
	n.t.Helper()
	await.True(n.t, what, func() bool { return n.seen() == calls })
}

// release lets one held call continue.
func (n *network) release() { n.released <- struct{}{} }

func (n *network) next(path string) fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !strings.HasSuffix(path, n.path) {
		return none
	}
	n.calls++
	if len(n.faults) == 0 {
		return none
	}
	next := n.faults[0]
	n.faults = n.faults[1:]
	return next
}

// hold returns when the call is released.
func (n *network) hold(r *http.Request) {
	select {
	case <-n.released:
	case <-n.ended:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (n *network) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	abortOn(err)
	fault := n.next(r.URL.Path)
	switch fault {
	case requestLost:
		panic(http.ErrAbortHandler)
	case requestHeld:
		n.hold(r)
	}
	request, err := http.NewRequestWithContext(
		r.Context(), r.Method, gatewayURL+r.URL.RequestURI(), bytes.NewReader(body))
	abortOn(err)
	request.Header = r.Header.Clone()
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	abortOn(err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	abortOn(err)
	switch fault {
	case answerLost:
		panic(http.ErrAbortHandler)
	case answerHeld:
		n.hold(r)
	case badGateway:
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	if fault == answerCut {
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(text)
}

func abortOn(err error) {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}
