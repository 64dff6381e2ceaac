//go:build unix

package chaos

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/internal/freeport"
	"github.com/fencegate/fencegate/internal/pgtest"
)

// host is a machine for a database, with an address that stays the same whatever cluster runs there. Nobody else
// forwards TCP to a cluster's socket.
type host struct {
	listener net.Listener

	mu     sync.Mutex
	socket string
}

func newHost(t testing.TB) *host {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", freeport.Address(t))
	check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	h := &host{listener: listener}
	go h.serve()
	return h
}

func (h *host) address() string { return h.listener.Addr().String() }

// run has the host run a cluster.
func (h *host) run(c *pgtest.Cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.socket = c.Socket()
}

func (h *host) serve() {
	for {
		client, err := h.listener.Accept()
		if err != nil {
			return // closed
		}
		go h.forward(client.(*net.TCPConn)) //nolint:forcetypeassert // it is a TCP listener
	}
}

// forward connects a client to the cluster until one of the two ends. Without a cluster the connection is reset.
func (h *host) forward(client *net.TCPConn) {
	h.mu.Lock()
	socket := h.socket
	h.mu.Unlock()
	server, err := net.Dial("unix", socket)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	var once sync.Once
	end := func() { once.Do(func() { _, _ = client.Close(), server.Close() }) }
	go func() {
		defer end()
		_, _ = io.Copy(server, client)
	}()
	defer end()
	_, _ = io.Copy(client, server)
}

func newProxy(t testing.TB, name, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, name, freeport.Address(t), upstream)
	check(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy
}

// The sides of a gateway's network.
func toClients(m *member) []*toxiproxy.Proxy  { return []*toxiproxy.Proxy{m.clients} }
func toDatabase(m *member) []*toxiproxy.Proxy { return m.databases }

// toxic disturbs the connections of one gateway, in one direction.
func toxic(side func(*member) []*toxiproxy.Proxy, attributes string) func(*world, step) func() {
	return func(w *world, s step) func() {
		w.t.Helper()
		proxies := side(w.member(s.target))
		stream := []string{"upstream", "downstream"}[s.target/16%2]
		for _, proxy := range proxies {
			name := fmt.Sprint("toxic ", len(proxy.Toxics.GetToxicArray()))
			text := fmt.Sprintf(`{"name":%q,"stream":%q,%s}`, name, stream, attributes)
			_, err := proxy.Toxics.AddToxicJson(strings.NewReader(text))
			check(w.t, err)
		}
		return func() {
			for _, proxy := range proxies {
				proxy.Toxics.ResetToxics(w.t.Context())
			}
		}
	}
}
