package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/internal/testenv/postgres"
)

func TestHealthOfAGatewayThatServes(t *testing.T) {
	t.Parallel()
	gateway := newShell(t)
	if out := gateway.must("health"); fields(out)["status"] != "ok" {
		t.Errorf("health says %q", out)
	}
	if out := gateway.must("health", "--ready", "--output", "json"); strings.TrimSpace(out) != `{"status":"ready"}` {
		t.Errorf("health --ready says %q", out)
	}
	gateway.fails(exitUsage, "--timeout", "health", "--timeout", "0s")
	gateway.fails(exitUsage, "--url", "health", "--url", "nonsense")
}

// A gateway whose database is away runs, and is not ready.
func TestHealthWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	gateway := newShellOn(t, cluster.URL())
	gateway.must("health", "--ready")
	cluster.Stop()
	gateway.must("health")
	await.True(t, "health --ready notices", func() bool { return gateway.do("health", "--ready").code != exitOK })
	gateway.fails(exitUnavailable, "can't serve", "health", "--ready")
	got := gateway.do("health", "--ready", "--output", "json")
	if !strings.Contains(got.out+got.errOut, `"reason":"database_unreachable"`) {
		t.Errorf("health --ready says %q %q, want the reason", got.out, got.errOut)
	}
}

func TestHealthOfNoGateway(t *testing.T) {
	t.Parallel()
	nobody := shell{t, "http://127.0.0.1:1"}
	nobody.fails(exitUnavailable, "", "health")
	nobody.fails(exitUnavailable, "", "health", "--ready")
	proxied := shell{t, awayBehindProxy(t)}
	proxied.fails(exitUnavailable, "503", "health")
	proxied.fails(exitUnavailable, "503", "put", "a", "k", "v", "--token", "1.1")
}

// awayBehindProxy returns the URL of a proxy that reaches no gateway.
func awayBehindProxy(t *testing.T) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "<html>No server is available.</html>")
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}
