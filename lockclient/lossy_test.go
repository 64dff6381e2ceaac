package lockclient_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/lockclient"
)

// fault is what becomes of a call on its way.
type fault int

const (
	none        fault = iota
	requestLost       // the gateway never sees it
	answerLost        // the gateway has done it, and its answer does not arrive
	answerCut         // half of the answer arrives
	badGateway        // the gateway has done it, and a proxy answers in its place
	held              // it stands still until the network is released, and then goes on
	answerHeld        // its answer does
)

// network is between a client and a gateway, and does harm to calls.
type network struct {
	t      *testing.T
	target string
	// released lets one held call go on.
	released chan struct{}
	ended    chan struct{}

	mu     sync.Mutex
	faults []fault
	path   string
	calls  []string
}

// newNetwork leads to the gateway of all tests.
func newNetwork(t *testing.T) (*network, string) {
	t.Helper()
	shared(t)
	n := &network{t: t, target: gatewayURL, released: make(chan struct{}), ended: make(chan struct{})}
	server := httptest.NewServer(n)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(n.ended) })
	return n, server.URL
}

// lossy gives a client behind such a network, and a name that no other test has.
func lossy(t *testing.T, opts ...lockclient.Option) (*network, *lockclient.Client, string) {
	t.Helper()
	n, url := newNetwork(t)
	return n, newClient(t, url, opts...), strings.ToLower(t.Name())
}

// harm does these to the next calls whose path ends so, one each.
func (n *network) harm(path string, faults ...fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.path, n.faults, n.calls = path, faults, nil
}

// seen is the calls that came since harm, those that were harmed among them.
func (n *network) seen() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.calls)
}

func (n *network) next(path string) fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !strings.HasSuffix(path, n.path) {
		return none
	}
	n.calls = append(n.calls, path)
	if len(n.faults) == 0 {
		return none
	}
	next := n.faults[0]
	n.faults = n.faults[1:]
	return next
}

// standStill returns when the network is released.
func (n *network) standStill(r *http.Request) {
	select {
	case <-n.released:
	case <-n.ended:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault := n.next(r.URL.Path)
	switch fault {
	case requestLost:
		panic(http.ErrAbortHandler)
	case held:
		n.standStill(r)
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, n.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		n.t.Error(err)
		return
	}
	request.Header = r.Header.Clone()
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch fault {
	case answerLost:
		panic(http.ErrAbortHandler)
	case answerHeld:
		n.standStill(r)
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
