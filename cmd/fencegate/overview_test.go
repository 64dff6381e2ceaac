package main

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
)

func (s shell) overview() api.Overview {
	s.t.Helper()
	client, err := lockclient.New(s.url)
	check(s.t, err)
	defer client.Close()
	overview, err := admin.New(client).Overview(s.t.Context(), 5*time.Minute)
	check(s.t, err)
	return overview
}

// Gateways are listed while they serve, under their configured names, and each gateway shows all of them.
func TestServeReportsHealth(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	named, unnamed := newShellOn(t, url, "--gateway-name", "left"), newShellOn(t, url)
	addressed := strings.TrimPrefix(unnamed.url, "http://")
	named.must("lock", "acquire", "job", "--owner-id", "w", "--ttl", "10m")
	for s, self := range map[shell]string{named: "left", unnamed: addressed} {
		var overview api.Overview
		await.True(t, "both gateways, a sample and the inventory are shown", func() bool {
			overview = s.overview()
			sampled := func(point api.OverviewPoint) bool { return point.OverviewRates != nil }
			return len(overview.Gateways) == 2 && slices.ContainsFunc(overview.Points, sampled) &&
				overview.Inventory != nil && overview.Inventory.Held == 1
		})
		for _, g := range overview.Gateways {
			if g.State != api.GatewayServing || g.Name != "left" && g.Name != addressed || g.Self != (g.Name == self) {
				t.Errorf("%s shows the gateway %+v", self, g)
			}
		}
	}
}

func TestGatewayName(t *testing.T) {
	if name := gatewayName(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 8080}); name != "10.0.0.5:8080" {
		t.Errorf("at an address it is called %s", name)
	}
	for _, ip := range []net.IP{net.IPv4zero, net.IPv6unspecified, nil} {
		if name := gatewayName(&net.TCPAddr{IP: ip, Port: 8080}); !strings.HasSuffix(name, ":8080") ||
			len(name) < len("h:8080") || strings.ContainsAny(name, "[]") {
			t.Errorf("at every address it is called %s", name)
		}
	}
}
