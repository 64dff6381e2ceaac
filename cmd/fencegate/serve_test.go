package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/test/spec"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/admin"
	"github.com/fencegate/fencegate/lockclient/api"
)

// A flag precedes the environment, which precedes the file. The configuration that is shown can be used as the file.
func TestConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fencegate.yaml")
	check(t, os.WriteFile(path, []byte(`listen: 127.0.0.1:1
gateway-name: from-file
request-timeout: 7s
listen-url: postgres://gateway:geheim@127.0.0.1/db
migrate: false
trusted-proxies: [10.0.0.0/8, 192.0.2.1]
`), 0o600))
	s := shell{t, ""}
	t.Setenv("FENCEGATE_GATEWAY_NAME", "from-environment")
	t.Setenv("FENCEGATE_LISTEN", "127.0.0.1:2")
	shown := s.must("config", "--config", path, "--listen", "127.0.0.1:3")
	for _, line := range []string{
		"listen: 127.0.0.1:3", "gateway-name: from-environment", "request-timeout: 7s", "migrate: false",
		"trusted-proxies: [10.0.0.0/8, 192.0.2.1/32]", "drain-delay: 0s",
		"# listen-url: postgres://gateway:xxxxx@127.0.0.1/db",
	} {
		if !strings.Contains("\n"+shown, "\n"+line+"\n") {
			t.Errorf("%q is not in\n%s", line, shown)
		}
	}
	t.Setenv("FENCEGATE_GATEWAY_NAME", "")
	t.Setenv("FENCEGATE_LISTEN", "")
	check(t, os.Unsetenv("FENCEGATE_GATEWAY_NAME"))
	check(t, os.Unsetenv("FENCEGATE_LISTEN"))
	check(t, os.WriteFile(path, []byte(shown), 0o600))
	t.Setenv("FENCEGATE_CONFIG", path)
	if again := s.must("config"); again != strings.Replace(shown, "# listen-url: postgres://gateway:xxxxx@127.0.0.1/db\n",
		"# listen-url:\n", 1) {
		t.Errorf("read again, it is\n%s\nwant\n%s", again, shown)
	}

	// The file is that of serve, and of no other command.
	check(t, os.WriteFile(path, []byte("listen: a\nlisten-host: b\n"), 0o600))
	s.must("version")
	for _, command := range []string{"serve", "config"} {
		s.fails(exitUsage, path+`: line 2: unknown key "listen-host"`, command)
	}
	s.fails(exitUsage, "no such file", "serve", "--config", path+".missing")
}

// Profiles are served on --debug-listen only, for allowed hosts, and without the command line. Pages of other sites get
// none.
func TestDebugListen(t *testing.T) {
	t.Parallel()
	address := network.FreeAddress(t)
	s := newShell(t, "--debug-listen", address)
	for _, of := range []struct {
		url, host, site string
		status          int
	}{
		{"http://" + address + "/debug/pprof/", "", "none", http.StatusOK},
		{"http://" + address + "/debug/pprof/heap", "localhost", "", http.StatusOK},
		{"http://" + address + "/debug/pprof/heap", "rebound.test", "", http.StatusMisdirectedRequest},
		{"http://" + address + "/debug/pprof/heap", "", "cross-site", http.StatusMisdirectedRequest},
		{"http://" + address + "/debug/pprof/cmdline", "", "", http.StatusNotFound},
		{s.url + "/debug/pprof/", "", "", http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, of.url, nil)
		check(t, err)
		request.Host = of.host
		request.Header.Set("Sec-Fetch-Site", of.site)
		response, err := http.DefaultClient.Do(request)
		check(t, err)
		_ = response.Body.Close()
		if response.StatusCode != of.status {
			t.Errorf("%s with Host %q and Sec-Fetch-Site %q was answered with %d, want %d", of.url, of.host, of.site,
				response.StatusCode, of.status)
		}
	}
}

// A collector that takes spans and never answers keeps nothing from being served, nor the gateway from ending. Every
// line of the log is JSON.
func TestServeEndsWithoutItsCollector(t *testing.T) {
	t.Parallel()
	called, end := make(chan struct{}, 100), make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-end
	}))
	t.Cleanup(collector.Close)
	t.Cleanup(func() { close(end) })
	serve := shell{t: t}.start("serve", "--database-url", postgres.Migrated(t), "--listen", "127.0.0.1:0", "--log-format",
		"json",
		"--access-log-sample", "1", "--trace-endpoint", collector.URL)
	serve.says(" serves on ")
	_, url, _ := strings.Cut(strings.TrimSpace(serve.out.String()), " serves on ")
	s := shell{t, url}
	s.must("lock", "acquire", "a")
	<-called
	s.must("lock", "get", "a")
	serve.signal(syscall.SIGTERM)
	got := serve.wants(exitOK, "the last spans are not delivered")
	requests := 0
	for line := range strings.Lines(got.errOut) {
		var keys map[string]any
		if err := json.Unmarshal([]byte(line), &keys); err != nil || keys["time"] == nil || keys["level"] == nil ||
			keys["msg"] == nil {
			t.Errorf("%q: %v", line, err)
		}
		if keys["msg"] == "request" && keys["trace_id"] != nil {
			requests++
		}
	}
	if requests != 2 {
		t.Errorf("%d requests are logged with their trace: %s", requests, got.errOut)
	}
}

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

// A gateway whose database is away runs, and is not ready.
func TestHealthWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	cluster := postgres.NewCluster(t)
	gateway := newShellOn(t, cluster.URL())
	if out := gateway.must("health", "--ready", "--output", "json"); strings.TrimSpace(out) != `{"status":"ready"}` {
		t.Errorf("health --ready says %q", out)
	}
	cluster.Stop()
	if out := gateway.must("health"); fields(out)["status"] != "ok" {
		t.Errorf("health says %q", out)
	}
	await.True(t, "health --ready notices", func() bool { return gateway.do("health", "--ready").code != exitOK })
	gateway.fails(exitUnavailable, "can't serve", "health", "--ready")
	got := gateway.do("health", "--ready", "--output", "json")
	if !strings.Contains(got.out+got.errOut, `"reason":"database_unreachable"`) {
		t.Errorf("health --ready says %q %q, want the reason", got.out, got.errOut)
	}
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

// TestRecordHistory checks that a gateway records what its clients ask for and are answered, so that it can be checked.
func TestRecordHistory(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	gateway := newShellOn(t, postgres.Migrated(t), "--record-history", directory)
	var lease api.Lease
	parseLine(t, gateway.must("lock", "acquire", "job", "--owner-id", "w", "--ttl", "10m", "--output", "json"), &lease)
	token := strconv.FormatInt(lease.FencingToken, 10)
	gateway.must("put", "job", "k", "private", "--token", token+".1")
	gateway.must("lock", "break", "job", "--reason", "a test")
	gateway.fails(exitNotHolder, "token_stale", "put", "job", "k", "late", "--token", token+".2")
	var calls []spec.Call
	await.True(t, "the calls are in the file", func() bool {
		files, err := filepath.Glob(filepath.Join(directory, "*.calls"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the files are %q (%v)", files, err)
		}
		text, err := os.ReadFile(files[0])
		check(t, err)
		if strings.Contains(string(text), "private") {
			t.Error("the file has a value")
		}
		calls, err = spec.ReadCalls(strings.NewReader(string(text[:strings.LastIndexByte("\n"+string(text), '\n')])))
		check(t, err)
		return len(calls) == 4
	})
	var codes []string
	for _, call := range calls {
		codes = append(codes, string(call.Op.Kind)+" "+call.Answer.Code)
	}
	if got := strings.Join(codes, ", "); got != "acquire granted, put admitted, break broken, put token_stale" {
		t.Errorf("the calls are %s", got)
	}
	if found := spec.CheckPart(calls, 0); len(found) > 0 {
		t.Errorf("of a sound history it says %v", found)
	}
	calls[3].Answer.Code, calls[3].Answer.Version = spec.CodeAdmitted, 2
	if found := spec.CheckPart(calls, 0); len(found) != 1 || found[0].Promise != "P3" {
		t.Errorf("of a write after the end it says %v", found)
	}
}
