package clients_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencegate/fencegate/internal/netfault"
)

// apiKey is the credential that each client must send. The proxy takes it away, since the gateway asks for none.
const apiKey = "cases"

// proxy stands before the gateway, and harms the calls of clients as their cases say. Each case has a path of its
// own, /{case}, below which the gateway's paths are. The runner says at /{case}/-/… what to do.
type proxy struct {
	gatewayURL string

	mu    sync.Mutex
	lines map[string]*line
}

// line is the way of one case's calls to the gateway.
type line struct {
	mu     sync.Mutex
	paths  []string // of the calls
	harms  map[string]harm
	let    chan struct{} // lets one held call continue
	closed chan struct{}
}

// harm is what happens to the next calls of a path, one fault each.
type harm struct {
	Path   string           `json:"path"`
	Faults []netfault.Fault `json:"faults"`
	// Always repeats the faults.
	Always bool `json:"always"`
}

func startProxy(t *testing.T, gatewayURL string) string {
	t.Helper()
	p := &proxy{gatewayURL: gatewayURL, lines: map[string]*line{}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.end()
		server.Close()
	})
	return server.URL
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	l := p.line(run)
	if command, ok := strings.CutPrefix(path, "-/"); ok {
		l.obey(w, r, command)
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
	netfault.Pass(w, r, p.gatewayURL, l.next(path), l.hold)
}

func (p *proxy) line(run string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[run] == nil {
		p.lines[run] = &line{harms: map[string]harm{}, let: make(chan struct{}), closed: make(chan struct{})}
	}
	return p.lines[run]
}

// end ends all held calls.
func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		close(l.closed)
	}
}

// obey does what the runner asks for: harm, let_go, or calls?path=, the number of calls to paths that end so, since the
// last harm to it.
func (l *line) obey(w http.ResponseWriter, r *http.Request, command string) {
	count := 0
	switch command {
	case "harm":
		var what harm
		if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		l.harms[what.Path] = what
		l.paths = slices.DeleteFunc(l.paths, func(path string) bool { return strings.HasSuffix(path, what.Path) })
		l.mu.Unlock()
	case "let_go":
		select {
		case l.let <- struct{}{}:
		case <-r.Context().Done():
		}
	case "calls":
		l.mu.Lock()
		for _, path := range l.paths {
			if strings.HasSuffix(path, r.URL.Query().Get("path")) {
				count++
			}
		}
		l.mu.Unlock()
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]int{"count": count})
}

// next notes a call, and returns its fault.
func (l *line) next(path string) netfault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	path = "/" + path
	l.paths = append(l.paths, path)
	for suffix, what := range l.harms {
		if !strings.HasSuffix(path, suffix) || len(what.Faults) == 0 {
			continue
		}
		fault := what.Faults[0]
		what.Faults = slices.Clone(what.Faults[1:])
		if what.Always {
			what.Faults = append(what.Faults, fault)
		}
		l.harms[suffix] = what
		return fault
	}
	return netfault.None
}

// hold returns when the runner lets the call go.
func (l *line) hold(r *http.Request) {
	select {
	case <-l.let:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-l.closed:
		panic(http.ErrAbortHandler)
	}
}
