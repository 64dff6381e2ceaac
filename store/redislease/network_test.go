package redislease_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/redis"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/redislease"
)

// link is the network between a gateway and a server.
type link struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

func newLink(t *testing.T, to *redis.Server) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	l := &link{t, toxiproxy.NewProxy(server, to.Address(), "127.0.0.1:0", to.Address())}
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	return l
}

// delayed and silent are what may be wrong with a link: what is sent arrives a minute later, or never.
const delayed, silent = `"type":"latency","attributes":{"latency":60000}`, `"type":"timeout","attributes":{"timeout":0}`

// disturb gives the link a fault for what is sent to the server, or for its answers.
func (l *link) disturb(fault, stream string) {
	l.t.Helper()
	toxic := fmt.Sprintf(`{"name":%q,"stream":%q,%s}`, stream, stream, fault)
	if _, err := l.proxy.Toxics.AddToxicJson(io.NopCloser(strings.NewReader(toxic))); err != nil {
		l.t.Fatal(err)
	}
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(l.t.Context()) }

// TestNetwork checks that a gateway whose network to the servers delays or loses requests, or their answers, grants and
// renews by a majority that it reaches, and by no minority; and that others get the lock soon after.
func TestNetwork(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	for name, fault := range map[string]struct{ kind, stream string }{
		"requests are delayed": {delayed, "upstream"},
		"requests are lost":    {silent, "upstream"},
		"answers are lost":     {silent, "downstream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := startVoting(t, 3)
			var links []*link
			var config redislease.Config
			for _, s := range servers {
				links = append(links, newLink(t, s))
				config.URLs = append(config.URLs, "redis://"+links[len(links)-1].proxy.Listen)
			}
			leases, other := open(t, db, config), open(t, db, redislease.Config{}, servers...)
			config.Timeout = hasty
			impatient := open(t, db, config)
			kept := acquire(t, leases, request(name+"/kept", "A"))
			links[0].disturb(fault.kind, fault.stream)
			lease := acquire(t, leases, request(name+"/lock", "A"))
			if err := renew(t, leases, lease); err != nil {
				t.Errorf("a renewal at two of three: %v", err)
			}
			release(t, leases, lease)

			links[1].disturb(fault.kind, fault.stream)
			_, err := impatient.Acquire(await.Context(t), request(name+"/lock", "A"))
			if !errors.Is(err, store.ErrProviderUnavailable) || store.OutcomeOf(err) != store.OutcomeNotApplied {
				t.Errorf("an acquire at one of three: %v, want ErrUnavailable, not applied", err)
			}
			fails(t, "a renewal at one of three", renew(t, impatient, kept), store.ErrProviderUnavailable)
			next := acquire(t, other, waiting(name+"/lock", "B")) // after what the first has reserved by lost requests
			for _, l := range links {
				l.heal()
			}
			await.True(t, "a renewal after the faults", func() bool {
				_, err := leases.Renew(await.Context(t), kept.Ref(), 0)
				return err == nil
			})
			if err := renew(t, other, next); err != nil {
				t.Errorf("a renewal by the holder: %v", err)
			}
		})
	}
}
