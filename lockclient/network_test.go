package lockclient_test

import (
	"testing"

	"github.com/fencegate/fencegate/internal/await"
	"github.com/fencegate/fencegate/internal/netfault"
	"github.com/fencegate/fencegate/lockclient"
)

// losses are all ways to lose an answer.
var losses = []netfault.Fault{netfault.AnswerLost, netfault.RequestLost, netfault.AnswerCut, netfault.BadGateway}

// network is a proxy in front of the shared gateway that harms calls.
type network struct {
	*netfault.Network
	t    *testing.T
	path string // of the last harm
}

// lossy returns a client behind a network, and a name that no other test has.
func lossy(t *testing.T) (*network, *lockclient.Client, string) {
	t.Helper()
	_, lock := shared(t)
	n := &network{Network: netfault.New(gatewayURL), t: t}
	url, _ := serve(t, n.ServeHTTP)
	t.Cleanup(n.Close)
	return n, newClient(t, url), lock
}

// harm harms the next calls whose path ends so, by one fault each.
func (n *network) harm(path string, faults ...netfault.Fault) {
	n.path = path
	n.Harm(netfault.Harm{Path: path, Faults: faults})
}

// seen counts the calls since harm.
func (n *network) seen() int { return n.Calls(n.path) }

func (n *network) await(calls int, what string) {
	n.t.Helper()
	await.True(n.t, what, func() bool { return n.seen() == calls })
}
