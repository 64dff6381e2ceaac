// Package clients_test runs the contract cases, cases.json, with each client: in Go, Python and TypeScript.
package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/gateway"
	"github.com/fencegate/fencegate/internal/test/testenv/network"
	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

const casesFile = "cases.json"

type contractCase struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Needs names an ability that a client may lack.
	Needs string `json:"needs"`
	// Alone says that a runner runs the case after all others, and no other meanwhile.
	Alone  bool `json:"alone"`
	Client struct {
		AnswerTimeoutMS int64    `json:"answer_timeout_ms"`
		AnswerBytesMax  int64    `json:"answer_bytes_max"`
		Gateways        []string `json:"gateways"`
	} `json:"client"`
	Steps []step `json:"steps"`
}

type step struct {
	Do          string            `json:"do"`
	Lease       string            `json:"lease"`
	Client      string            `json:"client"`
	Lock        string            `json:"lock"`
	Mode        string            `json:"mode"`
	TTLMS       int64             `json:"ttl_ms"`
	WaitMS      int64             `json:"wait_ms"`
	Heartbeat   bool              `json:"heartbeat"`
	Key         string            `json:"key"`
	Value       any               `json:"value"`
	ContentType string            `json:"content_type"`
	IfVersion   *int64            `json:"if_version"`
	IfAbsent    bool              `json:"if_absent"`
	Ops         []json.RawMessage `json:"ops"`
	Writes      []api.BulkWrite   `json:"writes"`
	Path        string            `json:"path"`
	Faults      []network.Fault   `json:"faults"`
	Always      bool              `json:"always"`
	MS          int64             `json:"ms"`
	Steps       []step            `json:"steps"`
	Background  string            `json:"background"`
	Of          string            `json:"of"`
	Until       bool              `json:"until"`
	Raises      bool              `json:"raises"`
	Expect      map[string]any    `json:"expect"`
}

// verdict is what a runner says of a case. All empty: it passed.
type verdict struct {
	Case  string `json:"case"`
	Error string `json:"error"`
	// Lacks says why the client can't do what the case needs.
	Lacks string `json:"lacks"`
}

// place is where the cases run.
type place struct{ gatewayURL, proxyURL, tlsURL string }

// addresses are the gateways of a case: the one, behind the proxy or not, and those that can't be called so.
func (p place) addresses(run string) map[string]string {
	return map[string]string{
		"proxy": p.proxyURL + "/" + run, "gateway": p.gatewayURL, "nowhere": "http://127.0.0.1:2",
		"unknown_authority": p.tlsURL, "tls_port": strings.Replace(p.tlsURL, "https", "http", 1),
		"http_port": strings.Replace(p.gatewayURL, "http", "https", 1),
	}
}

// languages are the clients.
var languages = []struct {
	name string
	run  func(*testing.T, []contractCase, place) []verdict
}{
	{"Go", runGo},
	{"Python", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "python", postgres.Require(t, "python3"), "-m", "tests.cases", "sync")
	}},
	{"Python asyncio", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "python", postgres.Require(t, "python3"), "-m", "tests.cases", "asyncio")
	}},
	{"TypeScript", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "typescript", postgres.Require(t, "node"), "test/cases.js")
	}},
	{"Deno", func(t *testing.T, _ []contractCase, at place) []verdict {
		return runProgram(t, at, "typescript", fromNPM(t, "deno"), "run", "-A", "--no-config", "test/cases.js")
	}},
}

// Each client passes each case. Not beside the other tests, whose compilers would slow down the heartbeats.
func TestCases(t *testing.T) { //nolint:paralleltest // see above
	text, err := os.ReadFile(casesFile)
	check(t, err)
	var file struct {
		About string
		Cases []contractCase
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a misspelt step must not pass
	check(t, decoder.Decode(&file))

	gateway := gateway.Serve(t, postgres.Migrated(t))
	at := place{gateway.URL, startProxy(t, gateway.URL), startEncrypted(t)}

	for _, language := range languages {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			verdicts := map[string]verdict{}
			for _, each := range language.run(t, file.Cases, at) {
				verdicts[each.Case] = each
			}
			for _, each := range file.Cases {
				got, ran := verdicts[each.Name]
				switch {
				case !ran:
					t.Errorf("%s: %s: it did not run", each.Group, each.Name)
				case got.Error != "":
					t.Errorf("%s: %s: %s", each.Group, each.Name, got.Error)
				case got.Lacks != "" && each.Needs == "":
					t.Errorf("%s: %s: the client must do it, but %s", each.Group, each.Name, got.Lacks)
				}
			}
		})
	}
}

// startEncrypted starts a server whose certificate an unknown authority has signed.
func startEncrypted(t *testing.T) string {
	t.Helper()
	authority, err := devcert.NewAuthority("unknown")
	check(t, err)
	signed, err := authority.Issue(devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	check(t, err)
	certificate, err := tls.X509KeyPair(signed.Certificate, signed.Key)
	check(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// runProgram runs a runner of another language in its folder. It prints one verdict a line.
func runProgram(t *testing.T, at place, folder, name string, args ...string) []verdict {
	t.Helper()
	runner := exec.CommandContext(await.Context(t), name, append(args, "../"+casesFile)...)
	runner.Dir = folder
	runner.Env = append(os.Environ(), "FENCEGATE_URL="+at.gatewayURL, "PROXY_URL="+at.proxyURL, "TLS_URL="+at.tlsURL,
		"API_KEY="+apiKey,
		"PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	var failure strings.Builder
	runner.Stderr = &failure
	output, err := runner.Output()
	if err != nil || failure.Len() > 0 {
		t.Errorf("%s: %v\n%s", runner, err, failure.String())
	}
	var verdicts []verdict
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		var each verdict
		if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
			t.Fatalf("%s printed %q: %v", runner, lines.Text(), err)
		}
		verdicts = append(verdicts, each)
	}
	return verdicts
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
		p.obey(w, r, network, command)
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

// freeze stops the process until another owner was granted the lock that it holds.
func (p *proxy) freeze(ctx context.Context, pid int, lock string) error {
	client, err := lockclient.New(p.gatewayURL, lockclient.WithOwner("newer"))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	_, err = client.Acquire(ctx, lock, lockclient.WithWait(await.Limit))
	return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
}

// obey does what the runner asks for: harm, let_go, freeze, or calls?path=, the number of calls to paths that end so,
// since the last harm to it.
func (p *proxy) obey(w http.ResponseWriter, r *http.Request, n *network.Proxy, command string) {
	count := 0
	switch command {
	case "freeze":
		var what struct {
			PID  int    `json:"pid"`
			Lock string `json:"lock"`
		}
		err := json.NewDecoder(r.Body).Decode(&what)
		if err == nil {
			err = p.freeze(r.Context(), what.PID, what.Lock)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
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
