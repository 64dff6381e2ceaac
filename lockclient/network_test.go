package lockclient_test

import (
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/lockclient"
)

// losses are all ways to lose an answer.
var losses = []network.Fault{network.AnswerLost, network.RequestLost, network.AnswerCut, network.BadGateway}

// lossyNetwork is a proxy in front of the shared gateway that harms calls.
type lossyNetwork struct {
	*network.Proxy
	t    *testing.T
	path string // of the last harm
}

// lossy returns a client behind a network, and a name that no other test has.
func lossy(t *testing.T) (*lossyNetwork, *lockclient.Client, string) {
	t.Helper()
	_, lock := shared(t)
	n := &lossyNetwork{Proxy: network.NewProxy(gatewayURL), t: t}
	url, _ := serve(t, n.ServeHTTP)
	t.Cleanup(n.Close)
	return n, newClient(t, url), lock
}

// harm harms the next calls whose path ends so, by one fault each.
func (n *lossyNetwork) harm(path string, faults ...network.Fault) {
	n.path = path
	n.Harm(network.Harm{Path: path, Faults: faults})
}

// seen counts the calls since harm.
func (n *lossyNetwork) seen() int { return n.Calls(n.path) }

func (n *lossyNetwork) await(calls int, what string) {
	n.t.Helper()
	await.True(n.t, what, func() bool { return n.seen() == calls })
}
