package lockclient_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/netfault"
	"github.com/fencegate/fencegate/lockclient"
)

// losses are all ways to lose an answer.
var losses = []netfault.Fault{netfault.AnswerLost, netfault.RequestLost, netfault.AnswerCut, netfault.BadGateway}

// network is a proxy in front of the shared gateway that harms calls.
type network struct {
	t        *testing.T
	released chan struct{}
	ended    chan struct{}

	mu     sync.Mutex
	faults []netfault.Fault
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
func (n *network) harm(path string, faults ...netfault.Fault) {
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

func (n *network) next(path string) netfault.Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !strings.HasSuffix(path, n.path) {
		return netfault.None
	}
	n.calls++
	if len(n.faults) == 0 {
		return netfault.None
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
	netfault.Pass(w, r, gatewayURL, n.next(r.URL.Path), n.hold)
}
