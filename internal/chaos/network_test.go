//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/internal/testenv/network"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

// newHost returns a machine for a database, with an address that stays the same whatever cluster runs there.
func newHost(t testing.TB, c *postgres.Cluster) *network.Relay {
	t.Helper()
	host, err := network.NewRelay(t.Context(), "unix", c.Socket())
	check(t, err)
	t.Cleanup(host.Close)
	return host
}

func newProxy(t testing.TB, name, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, name, network.FreeAddress(t), upstream)
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
