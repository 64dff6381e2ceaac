package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/pgtest"
)

func (s shell) overview() (overview api.Overview) {
	s.t.Helper()
	response, err := http.Get(s.url + "/v1/overview")
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&overview); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("the overview is %s (%v)", response.Status, err)
	}
	return overview
}

// Gateways are listed while they serve, under their configured names, and each gateway shows all of them.
func TestServeReportsHealth(t *testing.T) {
	url := pgtest.Migrated(t)
	named, unnamed := newShellOn(t, url, "--gateway-name", "left", "--history-retention", "1m"), newShellOn(t, url)
	addressed := strings.TrimPrefix(unnamed.url, "http://")
	named.must("lock", "acquire", "job", "--owner-id", "w", "--ttl", "10m")
	for _, s := range []shell{named, unnamed} {
		names := map[string]bool{}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			overview := s.overview()
			reported := 0
			for _, point := range overview.Points {
				if point.OverviewRates != nil {
					reported++
				}
			}
			clear(names)
			for _, g := range overview.Gateways {
				names[g.Name] = g.State == api.GatewayServing &&
					g.Self == (s == named && g.Name == "left" || s == unnamed && g.Name == addressed)
			}
			if len(names) == 2 && reported > 0 && overview.Inventory != nil && overview.Inventory.Held == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the overview is %+v", overview)
			}
		}
		if !names["left"] || !names[addressed] {
			t.Errorf("the gateways are %v", names)
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
