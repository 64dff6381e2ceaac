package gateway

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/internal/apikey"
	"github.com/fencegate/fencegate/internal/test/testenv/generated"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/keyring"
)

// keysInMemory are live keys without a database.
type keysInMemory struct {
	keyring.Keys // nil: uses are not reported

	live  store.LiveKeys
	reads int
}

func (k *keysInMemory) LiveKeys(context.Context, int64) (*store.LiveKeys, error) {
	k.reads++
	k.live.Changes++
	return &k.live, nil
}

// add makes a key and returns the header that shows it.
func (k *keysInMemory) add(principal string, grants ...access.Grant) string {
	text, id, digest := apikey.New()
	k.live.Keys = append(k.live.Keys, store.LiveKey{ID: id, Digest: digest, Principal: principal, Grants: grants})
	return bearerOf(text)
}

func bearerOf(key string) string { return "Authorization: Bearer " + key }

// newKeyedGateway returns a gateway that accepts these keys, without a database.
func newKeyedGateway(t testing.TB, keys *keysInMemory) *Gateway {
	t.Helper()
	ring := keyring.New(keys)
	if err := ring.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return withoutDatabase(t, Config{Auth: auth.Keys{Keyring: ring}})
}

// ask sends a request without a connection.
func ask(g http.Handler, method, path string, headers ...string) answer {
	request := httptest.NewRequest(method, path, nil)
	addHeaders(request.Header, headers...)
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, request)
	return answer{
		request: method + " " + path, status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes(),
	}
}

// routePath is a path of a route with this name.
func routePath(template, name string) string {
	return strings.NewReplacer("{lock}", name, "{resource}", name, "{prefix}", name, "{key}", "k",
		"{session}", "5f1f3b0e-54c7-4c0f-9f53-2f7d5a0c9b1e", "{id}", "0123456789", "{file}", "dashboard.js", "{state}", name, "{version}", "1").Replace(template)
}

// TestRefusalsOfEveryRoute checks for each route that it refuses requests without a credential, with all scopes but
// its own, and with its own on another name or on not enough of them. The answer is the same for every name, and made
// without a database.
func TestRefusalsOfEveryRoute(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{}
	others, below := map[string]string{}, ""
	elsewhere := keys.add("elsewhere", grantsOn("other", access.Scopes...)...)
	below = keys.add("below", grantsOn("a/b/c", access.Scopes...)...)
	for route, rule := range accessRules {
		lacking := slices.DeleteFunc(slices.Clone(access.Scopes), func(s access.Scope) bool { return slices.Contains(rule.Scopes, s) })
		others[route] = keys.add("other scopes", grantsOn("", lacking...)...)
	}
	g := newKeyedGateway(t, keys)
	refused := func(route, credential string, status int) {
		method, template, _ := strings.Cut(route, " ")
		var first []byte
		for _, name := range []string{"a/b", "a/x", "a//", "\xff"} {
			path := routePath(template, strings.ReplaceAll(name, "\xff", "%FF"))
			got := ask(g, method, path, credential)
			if got.status != status {
				t.Errorf("%s %s with %.30q: answered %d, want %d: %s", method, path, credential, got.status, status, got.body)
				return
			}
			body := bytes.ReplaceAll(got.body, []byte(strings.ReplaceAll(path, "\xff", "%FF")), nil)
			if first == nil {
				first = body
			}
			if !bytes.Equal(body, first) {
				t.Errorf("%s: answered\n%s, and for another name\n%s", route, body, first)
			}
		}
	}
	for route, rule := range accessRules {
		if rule.IsPublic() {
			continue
		}
		refused(route, "X-None: ", http.StatusUnauthorized)
		refused(route, bearerOf("fgk_wrong"), http.StatusUnauthorized)
		if rule.Names == endpoint.NoScope {
			continue
		}
		refused(route, others[route], http.StatusForbidden)
		if rule.Names != endpoint.EachName {
			refused(route, elsewhere, http.StatusForbidden)
		}
		if rule.Names == endpoint.EveryName {
			refused(route, below, http.StatusForbidden)
		}
	}
}

func grantsOn(prefix string, scopes ...access.Scope) []access.Grant {
	grants := make([]access.Grant, len(scopes))
	for i, scope := range scopes {
		grants[i] = access.Grant{Scope: scope, Prefix: prefix}
	}
	return grants
}

// newGuarded is newHarness with a gateway that wants keys. It also returns the header of an administrator.
func newGuarded(t testing.TB) (h *harness, admin string) {
	t.Helper()
	h = newGateway(t, Config{}, patientDatabase(t))
	h.guard(t)
	admin = h.key(t, "admin", "all:")
	return h, admin
}

// guard has the gateway want keys, and serves it.
func (h *harness) guard(t testing.TB) {
	t.Helper()
	h.gateway.Auth = auth.Keys{Keyring: h.engine.Keyring()}
	if err := h.engine.Keyring().Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	runBeside(t, func(ctx context.Context) { h.engine.RunKeyring(ctx, func(error) {}) })
	h.client = serve(t, conforming(t, h.gateway))
}

// runBeside runs a function until the test ends.
func runBeside(t testing.TB, run func(context.Context)) {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	t.Cleanup(func() {
		end()
		<-ended
	})
}

// key makes a key directly in the database, and returns the header that shows it.
func (h *harness) key(t testing.TB, principal string, grants ...string) string {
	t.Helper()
	parsed, err := access.ParseAll(grants)
	if err != nil {
		t.Fatal(err)
	}
	text, id, digest := apikey.New()
	request := store.KeyRequest{ID: id, Digest: digest, Principal: principal, Grants: parsed, CreatedBy: "test"}
	if _, err := h.engine.CreateKey(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return bearerOf(text)
}

// TestEveryRouteIsAllowed checks that each of the scopes of a route is enough for it, on no more names than it says.
func TestEveryRouteIsAllowed(t *testing.T) {
	h, _ := newGuarded(t)
	for route, rule := range accessRules {
		method, template, _ := strings.Cut(route, " ")
		prefix := rule.Prefix + "a"
		if rule.Names == endpoint.EveryName {
			prefix = ""
		}
		for _, scope := range rule.Scopes {
			credential := h.key(t, "p", string(scope)+":"+prefix)
			request, err := http.NewRequestWithContext(t.Context(), method, h.base+routePath(template, "a/b"), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			addHeaders(request.Header, credential)
			response, err := h.http.Do(request) // a stream answers its head
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden {
				body, _ := io.ReadAll(response.Body)
				t.Errorf("%s with the scope %s on %q: answered %d: %s", route, scope, prefix, response.StatusCode, body)
			}
			_ = response.Body.Close()
		}
	}
}

// TestHostileCredentials checks that no credential but a live key is accepted, whatever it is, and that none causes a
// query. Each is counted by the reason.
func TestHostileCredentials(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{}
	good := keys.add("p", grantsOn("", access.Scopes...)...)
	g := newKeyedGateway(t, keys)
	text := strings.TrimPrefix(good, bearerOf(""))
	for name, headers := range map[string][]string{
		"none": nil, "empty": {"Authorization: "}, "no token": {"Authorization: Bearer "}, "another scheme": {"Authorization: Basic " + text},
		"twice": {good, good}, "in the query": {"X-Api-Key: " + text}, "not UTF-8": {bearerOf("\xff\xfe")},
		"cut off": {bearerOf(text[:63])}, "longer": {bearerOf(text + "x")}, "a space": {bearerOf(" " + text)},
		"several keys": {bearerOf(text + "," + text)}, "of 1 MB": {bearerOf(strings.Repeat("x", 1<<20))},
	} {
		if got := ask(g, "GET", "/v1/keys", headers...); got.status != http.StatusUnauthorized ||
			got.header.Get("WWW-Authenticate") == "" || bytes.Contains(got.body, []byte("fgk_")) {
			t.Errorf("%s: answered %d, %s %s", name, got.status, got.header, got.body)
		}
	}
	for range 500 {
		unknown, _, _ := apikey.New()
		if got := ask(g, "GET", "/v1/keys", bearerOf(unknown)); got.status != http.StatusUnauthorized {
			t.Fatalf("an unknown key was answered %d", got.status)
		}
	}
	if keys.reads != 1 {
		t.Errorf("the keys were read %d times, want once", keys.reads)
	}
	metrics := ask(g, "GET", "/metrics", good)
	if metrics.status != http.StatusOK {
		t.Fatalf("the good key was answered %d: %s", metrics.status, metrics.body)
	}
	for _, line := range []string{`{reason="missing"} 2`, `{reason="malformed"} 10`, `{reason="unknown"} 500`} {
		if !bytes.Contains(metrics.body, []byte("fencegate_unauthenticated_total"+line+"\n")) {
			t.Errorf("/metrics does not have fencegate_unauthenticated_total%s", line)
		}
	}
	if bytes.Contains(metrics.body, []byte(text)) {
		t.Error("/metrics has a key")
	}
}

// TestNotReadyWithoutKeys checks that a gateway is not ready before it has read the keys that it accepts.
func TestNotReadyWithoutKeys(t *testing.T) {
	t.Parallel()
	ring := keyring.New(&keysInMemory{})
	g := withoutDatabase(t, Config{Auth: auth.Keys{Keyring: ring}, KeysRead: ring.Ready})
	got := ask(g, "GET", "/readyz")
	if got.status != http.StatusServiceUnavailable || !bytes.Contains(got.body, []byte("keys_not_read")) {
		t.Errorf("before the keys were read, /readyz answered %d: %s", got.status, got.body)
	}
}

// TestServerIsBounded checks that the server bounds the size and the time of all that a connection sends.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	s := newKeyedGateway(t, &keysInMemory{}).newServer()
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 ||
		s.MaxHeaderBytes <= 0 || s.ConnState == nil || s.HTTP2.MaxConcurrentStreams <= 0 ||
		s.HTTP2.SendPingTimeout <= 0 || s.HTTP2.PingTimeout <= 0 || s.HTTP2.WriteByteTimeout <= 0 {
		t.Errorf("the server is %+v with HTTP/2 %+v, want every bound", s, s.HTTP2)
	}
}

// TestBadCredentialsOfOneAddress checks that one address may send only so many bad credentials a second, and that a good
// one from there, and others, are served.
func TestBadCredentialsOfOneAddress(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{}
	good := keys.add("p", access.Grant{Scope: access.Observe})
	g := newKeyedGateway(t, keys)
	g.Failures = limits.New(limits.Config{RequestsPerSecond: 2})
	var got answer
	for range 100 { // a slow machine sends more of them
		if got = ask(g, "GET", "/v1/whoami", bearerOf("bad")); got.status != http.StatusUnauthorized {
			break
		}
	}
	expectProblem(t, got, api.CodeRateLimited)
	if detail := string(got.body); !strings.Contains(detail, "bad credential") {
		t.Errorf("the answer is %s, want the reason", detail)
	}
	if got := ask(g, "GET", "/v1/whoami", good); got.status != http.StatusOK {
		t.Errorf("a good credential from the same address is answered %d, want 200", got.status)
	}
}

var update = flag.Bool("update", false, "rewrite the routes in docs/security.md")

// TestAccessDoc checks that the routes in docs/security.md are those that `make docs` generates.
func TestAccessDoc(t *testing.T) {
	t.Parallel()
	generated.Section(t, "../docs/security.md", "## Routes and scopes", generateAccessDoc(), *update)
}

// generateAccessDoc lists the routes of each scope and of the names on which it is needed.
func generateAccessDoc() string {
	type access struct{ scope, on string }
	groups := map[access][]string{}
	for _, route := range slices.SortedFunc(maps.Keys(accessRules), func(a, b string) int {
		reversed := func(route string) string { method, path, _ := strings.Cut(route, " "); return path + " " + method }
		return strings.Compare(reversed(a), reversed(b))
	}) {
		rule := accessRules[route]
		of := access{"`" + strings.ReplaceAll(endpoint.AnyOf(rule.Scopes), " or ", "` or `") + "`", "all names"}
		switch {
		case rule.IsPublic():
			of = access{"none", "public, also without a credential"}
		case rule.Names == endpoint.NoScope:
			of = access{"none", "any principal"}
		case rule.Names == endpoint.NameInPath:
			of.on = "the name in the path"
		case rule.Names == endpoint.EachName:
			of.on = "each name in it; others are left out, or refused"
		}
		groups[of] = append(groups[of], "`"+route+"`")
	}
	var text strings.Builder
	text.WriteString("\n| scope | on | routes |\n|---|---|---|\n")
	for _, of := range slices.SortedFunc(maps.Keys(groups), func(a, b access) int {
		return strings.Compare(a.scope+a.on, b.scope+b.on)
	}) {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", of.scope, of.on, strings.Join(groups[of], ", "))
	}
	text.WriteString("\n")
	return text.String()
}
