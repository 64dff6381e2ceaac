package pgtest

import (
	"context"
	"net"
	"net/url"
	"sync"
)

// Network is a way to a cluster by TCP that can swallow all packets. A swallowed packet arrives when the network is
// healed, as if it had been sent again: no connection breaks, and none gets an answer meanwhile.
type Network struct {
	listener net.Listener
	url      string
	socket   string // of the cluster

	mu     sync.Mutex
	passes chan struct{} // closed while packets pass
	open   []net.Conn
	ended  bool
}

// Network makes one that passes packets until the test ends.
func (c *Cluster) Network() *Network {
	c.t.Helper()
	listener, err := new(net.ListenConfig).Listen(c.t.Context(), "tcp", "127.0.0.1:0")
	check(c.t, err)
	n := &Network{listener: listener, url: tcpURL(c, listener.Addr()), socket: c.Socket(), passes: make(chan struct{})}
	close(n.passes)
	var running sync.WaitGroup
	running.Go(func() { n.serve(&running) })
	c.t.Cleanup(func() {
		_ = listener.Close()
		n.Heal()
		n.cut()
		running.Wait()
	})
	return n
}

// tcpURL returns the connection URL of the database fencegate at an address.
func tcpURL(c *Cluster, at net.Addr) string {
	target, err := url.Parse(c.URL())
	check(c.t, err)
	host, port, err := net.SplitHostPort(at.String())
	check(c.t, err)
	query := target.Query()
	query.Set("host", host)
	query.Set("port", port)
	target.RawQuery = query.Encode()
	return target.String()
}

// URL returns the connection URL of the database fencegate by this network.
func (n *Network) URL() string { return n.url }

// Swallow swallows all packets from now on.
func (n *Network) Swallow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.passes = make(chan struct{})
}

// Heal lets packets pass again. It does nothing if they do.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.passes:
	default:
		close(n.passes)
	}
}

// await returns while packets pass.
func (n *Network) await() {
	n.mu.Lock()
	passes := n.passes
	n.mu.Unlock()
	<-passes
}

func (n *Network) serve(running *sync.WaitGroup) {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() { n.connect(client, running) })
	}
}

// connect passes on what a client and the cluster send.
func (n *Network) connect(client net.Conn, running *sync.WaitGroup) {
	n.await()
	server, err := new(net.Dialer).DialContext(context.Background(), "unix", n.socket)
	if err != nil {
		_ = client.Close()
		return
	}
	if n.opened(client, server) {
		running.Go(func() { pass(server, client, n.await) })
		pass(client, server, n.await)
	}
}

// opened notes two connections, or closes them if the test has ended.
func (n *Network) opened(client, server net.Conn) bool {
	n.mu.Lock()
	n.open = append(n.open, client, server)
	ended := n.ended
	n.mu.Unlock()
	if ended {
		n.cut()
	}
	return !ended
}

// cut closes all connections, for good.
func (n *Network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	for _, conn := range n.open {
		_ = conn.Close()
	}
}

// pass copies until one of the two ends, and then ends both.
func pass(to, from net.Conn, await func()) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		await()
		if err == nil {
			_, err = to.Write(buffer[:count])
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}
