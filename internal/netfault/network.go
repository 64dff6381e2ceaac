package netfault

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Harm is what happens to the next calls whose paths end so, one fault each.
type Harm struct {
	Path   string  `json:"path"`
	Faults []Fault `json:"faults"`
	// Always repeats the faults.
	Always bool `json:"always"`
}

// Network passes calls on to a gateway, as an http.Handler, and harms some of them.
type Network struct {
	gatewayURL string
	released   chan struct{}
	closed     chan struct{}

	mu    sync.Mutex
	harms []Harm   // the newest one that has a fault for a call decides
	paths []string // of the calls
}

// New returns a network that harms nothing yet.
func New(gatewayURL string) *Network {
	return &Network{gatewayURL: gatewayURL, released: make(chan struct{}), closed: make(chan struct{})}
}

// Harm replaces the harm to calls of its path, and forgets those that came.
func (n *Network) Harm(harm Harm) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.harms = append(slices.DeleteFunc(n.harms, func(old Harm) bool { return old.Path == harm.Path }), harm)
	n.paths = slices.DeleteFunc(n.paths, func(path string) bool { return strings.HasSuffix(path, harm.Path) })
}

// Calls returns the number of calls whose paths end so, since the last harm to them.
func (n *Network) Calls(suffix string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, path := range n.paths {
		if strings.HasSuffix(path, suffix) {
			count++
		}
	}
	return count
}

// Release lets one held call continue. It waits for the call until ctx ends.
func (n *Network) Release(ctx context.Context) {
	select {
	case n.released <- struct{}{}:
	case <-ctx.Done():
	}
}

// Close ends all held calls.
func (n *Network) Close() { close(n.closed) }

func (n *Network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pass(w, r, n.gatewayURL, n.next(r.URL.EscapedPath()), n.hold)
}

// next notes a call, and returns its fault.
func (n *Network) next(path string) Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths = append(n.paths, path)
	for i := range slices.Backward(n.harms) {
		harm := &n.harms[i]
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
func (n *Network) hold(r *http.Request) {
	select {
	case <-n.released:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-n.closed:
		panic(http.ErrAbortHandler)
	}
}
