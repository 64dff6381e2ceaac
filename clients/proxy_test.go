package clients_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/testenv/network"
)

// apiKey is the credential that each client must send. The proxy takes it away, since the gateway asks for none.
const apiKey = "cases"

// proxy is in front of the gateway, and harms the calls of clients as their cases say. Each case has a network of its
// own, at /{case}, below which the gateway's paths are. The runner says at /{case}/-/… what to do.
type proxy struct {
	gatewayURL string

	mu       sync.Mutex
	networks map[string]*network.Proxy
}

func startProxy(t *testing.T, gatewayURL string) string {
	t.Helper()
	p := &proxy{gatewayURL: gatewayURL, networks: map[string]*network.Proxy{}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.end()
		server.Close()
	})
	return server.URL
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	network := p.network(run)
	if command, ok := strings.CutPrefix(path, "-/"); ok {
		obey(w, r, network, command)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+apiKey {
		http.Error(w, "the client did not send its credential", http.StatusTeapot)
		return
	}
	r.Header.Del("Authorization")
	target, err := url.Parse("/" + path)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	target.RawQuery = r.URL.RawQuery
	r.URL = target
	network.ServeHTTP(w, r)
}

func (p *proxy) network(run string) *network.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.networks[run] == nil {
		p.networks[run] = network.NewProxy(p.gatewayURL)
	}
	return p.networks[run]
}

// end ends all held calls.
func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.networks {
		n.Close()
	}
}

// obey does what the runner asks for: harm, let_go, or calls?path=, the number of calls to paths that end so, since the
// last harm to it.
func obey(w http.ResponseWriter, r *http.Request, n *network.Proxy, command string) {
	count := 0
	switch command {
	case "harm":
		var what network.Harm
		if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		n.Harm(what)
	case "let_go":
		n.Release(r.Context())
	case "calls":
		count = n.Calls(r.URL.Query().Get("path"))
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]int{"count": count})
}
