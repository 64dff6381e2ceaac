package pgtest

import (
	"net"
	"net/url"

	"github.com/fencegate/fencegate/internal/relay"
)

// Network is a way to a cluster by TCP that can fail.
type Network struct {
	*relay.Relay
	url string
}

// Network makes one that passes packets until the test ends.
func (c *Cluster) Network() *Network {
	c.t.Helper()
	made, err := relay.New(c.t.Context(), "unix", c.Socket())
	check(c.t, err)
	c.t.Cleanup(made.Close)
	target, err := url.Parse(c.URL())
	check(c.t, err)
	host, port, err := net.SplitHostPort(made.Address())
	check(c.t, err)
	query := target.Query()
	query.Set("host", host)
	query.Set("port", port)
	target.RawQuery = query.Encode()
	return &Network{made, target.String()}
}

// URL returns the connection URL of the database fencegate by this network.
func (n *Network) URL() string { return n.url }
