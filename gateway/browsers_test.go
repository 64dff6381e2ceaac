package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/ui"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/lockclient/api"
	"github.com/fencegate/fencegate/store"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	loopback := DefaultHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true)
	open := DefaultHosts(&net.TCPAddr{IP: net.IPv4zero}, false)
	for _, test := range []struct {
		allowed           []string
		admitted, refused string
	}{
		{
			loopback, "localhost localhost:8080 LOCALHOST:1 localhost. localhost.:80 127.0.0.1:8080 127.9.9.9 [::1]:8080 [::1] " +
				"[::ffff:127.0.0.1]:80 [0:0:0:0:0:0:0:1]",
			"evil.test evil.test:8080 localhost.evil.test 127.0.0.1.evil.test 10.0.0.5 0.0.0.0 [::] [fe80::1%25eth0] ::1 127.1 " +
				"0x7f000001 user@localhost localhost:x localhost: localhost:99999 [::1 ::1] []:80 . :8080 localhost.. [localhost]",
		},
		{open, "10.0.0.5:8080 127.0.0.1 [2001:db8::1]:80 localhost", "evil.test fencegate:8080 10.0.0.5.evil.test"},
		{
			[]string{"Fence.Example.", "b.test:8443", "10.0.0.0/8", "2001:db8::1", "192.0.2.7", "c.test:1", "c.test:2"},
			"fence.example fence.example:1 FENCE.example. b.test:8443 10.1.2.3:4 [2001:DB8::1]:9 192.0.2.7:80 c.test:1 c.test:2",
			"b.test b.test:80 b.test:8080 www.fence.example example localhost 127.0.0.1 192.0.2.70 11.0.0.1 c.test:3",
		},
		{[]string{"a.test", "*"}, "evil.test", ""},
		{nil, "evil.test", ""},
		{DefaultHosts(&net.TCPAddr{IP: net.IPv4zero}, true), "evil.test", ""},
	} {
		h, err := parseHosts(test.allowed)
		if err != nil {
			t.Fatal(err)
		}
		admits := func(host string) bool { return h == nil || h.admit(host) }
		for host := range strings.FieldsSeq(test.admitted) {
			if !admits(host) {
				t.Errorf("%q refuse %q, expected to admit it", test.allowed, host)
			}
		}
		for host := range strings.FieldsSeq(test.refused) {
			if admits(host) {
				t.Errorf("%q admit %q, expected to refuse it", test.allowed, host)
			}
		}
		if h != nil && h.admit("") {
			t.Errorf("%q admit a request without a host", test.allowed)
		}
	}
	for _, bad := range []string{"", "a b", "http://a.test", "a.test/x", "*.a.test", "[a]", "a:b"} {
		if _, err := parseHosts([]string{bad}); err == nil {
			t.Errorf("%q is accepted as a host", bad)
		}
	}
}

// A page at a rebound name can neither change nor read anything, by either version of HTTP. Health checks answer.
func TestReboundHostHasNoEffect(t *testing.T) {
	h := newGateway(t, Config{AllowedHosts: DefaultHosts(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false)},
		patientDatabase(t))
	h.serveItself(t)
	lease := h.acquire(t, "job", "worker")
	overBothNow(t, func(t *testing.T, http2 bool) {
		rebound := client{base: h.base, http: &http.Client{Transport: withHost{newHTTPClient(t, http2).Transport, "evil.test"}}}
		h.unchanged(t, func() {
			for _, got := range []answer{
				rebound.post(t, lockPath("job", "/break"), `{"reason":"page"}`),
				rebound.send(t, http.MethodPut, "/v1/policies/job", `{"authority":"external"}`, jsonType),
				rebound.post(t, lockPath("other", "/acquire"), `{"owner_id":"page","ttl_ms":1000}`),
				rebound.putWith(t, "job", token(lease, 1)),
				rebound.get(t, lockPath("job", "")), rebound.get(t, "/v1/overview"), rebound.get(t, "/metrics"),
				rebound.get(t, "/"), rebound.get(t, "/none"),
			} {
				if expectProblem(t, got, api.CodeUnknownHost); got.status != http.StatusMisdirectedRequest {
					t.Errorf("%s was answered with %d, expected 421", got.request, got.status)
				}
			}
		})
		as[api.Health](t, rebound.get(t, "/healthz"), http.StatusOK)
		as[api.Health](t, rebound.get(t, "/readyz"), http.StatusOK)
	})
	for _, request := range []string{
		"GET /v1/locks/job HTTP/1.0\n\n", // without a host
		"GET /v1/locks/job HTTP/1.1\nHost: evil.test\n\n",
		"GET http://evil.test/v1/locks/job HTTP/1.1\nHost: localhost\n\n",
	} {
		got, _ := h.wire(t, request).answer(t)
		if got.status != http.StatusMisdirectedRequest {
			t.Errorf("%q was answered with %d, expected 421", request, got.status)
		}
	}
}

// withHost changes the Host of requests.
type withHost struct {
	http.RoundTripper

	host string
}

func (w withHost) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Host = w.host
	return w.RoundTripper.RoundTrip(r)
}

// overBothNow is overBoth in subtests that end before it returns.
func overBothNow(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	test(t, false)
	test(t, true)
}

// dashboardServer serves the routes that need no database.
func dashboardServer(t *testing.T) client {
	t.Helper()
	return serve(t, conforming(t, withoutDatabase(t, Config{})))
}

// filePath is the path of a file of the dashboard.
func filePath(name string) string {
	if name == ui.Index {
		return "/"
	}
	return "/ui/" + name
}

// Every file is served with its type, its ETag and the headers that protect browsers, and openapi.yaml as it is.
func TestDashboardFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	got := c.get(t, "/openapi.yaml")
	if got.header.Get("Content-Type") != "application/yaml" || !bytes.Equal(got.body, openAPI) {
		t.Errorf("/openapi.yaml: answered %d %s with %d bytes, want the file", got.status, got.header, len(got.body))
	}
	files, err := dashboardFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range files {
		path := filePath(name)
		answer := c.get(t, path)
		if answer.status != http.StatusOK || !bytes.Equal(answer.body, file.Content) {
			t.Errorf("%s: answered %d with %d bytes, want 200 with %d", name, answer.status, len(answer.body), len(file.Content))
		}
		for header, want := range map[string]string{
			"Content-Type": file.ContentType, "Etag": file.ETag, "Cache-Control": "no-cache",
			"X-Content-Type-Options": "nosniff",
			"Referrer-Policy":        "no-referrer", "Content-Security-Policy": dashboardPolicy,
		} {
			if got := answer.header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", name, header, got, want)
			}
		}
		head := c.send(t, http.MethodHead, path, "")
		length := head.header.Get("Content-Length")
		if head.status != http.StatusOK || len(head.body) > 0 || length != strconv.Itoa(len(file.Content)) {
			t.Errorf("HEAD %s: answered %d with Content-Length %s, want 200 with %d", name, head.status, length,
				len(file.Content))
		}
		same := c.get(t, path, `If-None-Match: "other", W/`+file.ETag)
		if same.status != http.StatusNotModified || len(same.body) > 0 {
			t.Errorf("%s with its ETag: answered %d %q, want 304", name, same.status, same.body)
		}
	}
}

// The policy forbids loading from elsewhere, inline scripts and frames.
func TestDashboardPolicy(t *testing.T) {
	t.Parallel()
	for directive, want := range map[string]string{
		"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
		"frame-ancestors": "'none'", "base-uri": "'none'", "form-action": "'none'", "require-trusted-types-for": "'script'",
		"trusted-types": "'none'",
	} {
		if !slices.Contains(strings.Split(dashboardPolicy, "; "), directive+" "+want) {
			t.Errorf("the policy is %s, want %s %s in it", dashboardPolicy, directive, want)
		}
	}
}

func TestDashboardHasNoOtherFiles(t *testing.T) {
	t.Parallel()
	c := dashboardServer(t)
	for _, target := range []string{
		"/ui/", "/ui/index.html", "/ui/missing.js", "/ui/ui.go", "/ui/package.json", "/ui/../routes.go",
		"/ui/%2e%2e/routes.go", "/ui/pages", "/ui//app.js", "/index.html", "/ui",
	} {
		expectProblem(t, c.get(t, target), api.CodeNotFound)
	}
	got := c.post(t, "/", "")
	if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST /: answered %d with Allow %q, want 405 with GET, HEAD", got.status, got.header.Get("Allow"))
	}
}

// keyIn returns the key of the header that shows it.
func keyIn(header string) string { return strings.TrimPrefix(header, bearerOf("")) }

// signInWith sends a credential as the sign-in page does.
func signInWith(g http.Handler, credential string, secure bool, headers ...string) (answer, *http.Cookie) {
	body := encode(api.SignInRequest{Credential: credential})
	request := httptest.NewRequest(http.MethodPost, "/v1/sign-in", strings.NewReader(body))
	addHeaders(request.Header, append(headers, jsonType)...)
	if secure {
		request.TLS = &tls.ConnectionState{}
	}
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, request)
	got := answer{request: "sign in", status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
	if cookies := recorder.Result().Cookies(); len(cookies) == 1 {
		return got, cookies[0]
	}
	return got, nil
}

// TestSignIn checks that only a live key signs in, that scripts and other sites can't use its cookie, that it ends with
// the key or after 8 hours, and that signing out drops it.
func TestSignIn(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{live: store.LiveKeys{At: time.Now()}}
	good, short := keyIn(keys.add("p", grantsOn("a", access.Observe)...)), keyIn(keys.add("p"))
	keys.live.Keys[1].ExpiresAt = keys.live.At.Add(time.Hour)
	g := newKeyedGateway(t, keys)
	g.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} // of httptest

	for name, want := range map[string]struct {
		credential string
		secure     bool
		header     string
		cookie     string
		age        int // at most, and a minute less
	}{
		"plaintext":        {good, false, "", "fencegate", 28800},
		"TLS":              {good, true, "", "__Host-fencegate", 28800},
		"TLS at the proxy": {good, false, "X-Forwarded-Proto: https", "__Host-fencegate", 28800},
		"an hour left":     {short, true, "Sec-Fetch-Site: same-origin", "__Host-fencegate", 3600},
	} {
		got, cookie := signInWith(g, want.credential, want.secure, want.header)
		if got.status != http.StatusOK || cookie == nil {
			t.Errorf("%s: answered %d %s, %s", name, got.status, got.header, got.body)
			continue
		}
		if cookie.Name != want.cookie || cookie.Value != want.credential || cookie.Path != "/" || cookie.Domain != "" ||
			!cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode ||
			cookie.Secure != (want.cookie == "__Host-fencegate") || cookie.MaxAge > want.age || cookie.MaxAge < want.age-60 {
			t.Errorf("%s: the cookie is %s", name, cookie)
		}
		if bytes.Contains(got.body, []byte("fgk_")) || got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: answered %s %s", name, got.header, got.body)
		}
	}
	for name, refused := range map[string]struct {
		credential, header string
		status             int
	}{
		"unknown":           {keyIn((&keysInMemory{}).add("p")), "", http.StatusUnauthorized},
		"empty":             {"", "", http.StatusUnauthorized},
		"malformed":         {"fgk_\r\nSet-Cookie: a=b", "", http.StatusUnauthorized},
		"too long":          {strings.Repeat("x", 3801), "", http.StatusBadRequest},
		"from another site": {good, "Sec-Fetch-Site: cross-site", http.StatusForbidden},
	} {
		got, cookie := signInWith(g, refused.credential, false, refused.header)
		if got.status != refused.status || cookie != nil {
			t.Errorf("%s: answered %d with the cookie %v, want %d: %s", name, got.status, cookie, refused.status, got.body)
		}
	}
	out := ask(g, "DELETE", "/v1/sign-in")
	if want := "fencegate=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"; out.status != http.StatusNoContent ||
		out.header.Get("Set-Cookie") != want {
		t.Errorf("signing out answered %d with Set-Cookie %q, want %q", out.status, out.header.Get("Set-Cookie"), want)
	}
	if got := ask(g, "DELETE", "/v1/sign-in", "Sec-Fetch-Site: cross-site"); got.status != http.StatusForbidden {
		t.Errorf("another site has signed the user out: %d", got.status)
	}
}

// certified accepts every request, as certificates do on the connection of a client that has shown one.
type certified struct{}

func (certified) Authenticate(*http.Request) (*access.Principal, auth.Reason) {
	return access.New("certificate:c", access.Certificate, grantsOn("", access.Admin)), auth.Accepted
}

// TestRequestsOfBrowsers checks that a cookie is as good as the header, on requests that no other origin has sent, and
// that no other origin can use what a browser sends by itself, also where no credential is asked for.
func TestRequestsOfBrowsers(t *testing.T) {
	t.Parallel()
	keys := &keysInMemory{}
	key := keyIn(keys.add("p", grantsOn("", access.Observe, access.Admin)...))
	header, cookie, secure := bearerOf(key), "Cookie: other=1; fencegate="+key, "Cookie: __Host-fencegate="+key
	const cross, sibling = "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"
	const there = "Origin: https://elsewhere.test"
	guarded := newKeyedGateway(t, keys)
	open := withoutDatabase(t, Config{})
	certificates := withoutDatabase(t, Config{Auth: auth.Methods{Certificates: certified{}}})
	const refused = http.StatusUnsupportedMediaType // passed: the handler wants JSON
	for _, one := range []struct {
		g       *Gateway
		method  string
		headers []string
		status  int
	}{
		{guarded, "GET", []string{cookie}, 200},
		{guarded, "GET", []string{cookie, "Sec-Fetch-Site: same-origin"}, 200},
		{guarded, "GET", []string{cookie, cross}, 403},
		{guarded, "GET", []string{"Cookie: other=" + key}, 401},
		{guarded, "GET", []string{secure}, 401}, // without TLS no browser has this cookie
		{guarded, "GET", []string{cookie + "; fencegate=" + key}, 401},
		{guarded, "GET", []string{cookie, "Authorization: Bearer fgk_wrong"}, 401},
		{guarded, "GET", []string{header, cross}, 200},                       // no browser sends this header by itself
		{guarded, "GET", []string{cookie, "Authorization: Basic YTpi"}, 200}, // for a proxy
		{guarded, "POST", []string{cookie}, refused},
		{guarded, "POST", []string{cookie, "Origin: http://example.com"}, refused}, // httptest's host
		{guarded, "POST", []string{cookie, cross}, 403},
		{guarded, "POST", []string{cookie, sibling}, 403},
		{guarded, "POST", []string{cookie, there}, 403},
		{guarded, "POST", []string{cross}, 403},
		{certificates, "POST", nil, refused},
		{certificates, "POST", []string{cross}, 403}, // the browser shows the certificate with it
		{certificates, "POST", []string{cross, "Authorization: Basic YTpi"}, 403},
		{guarded, "POST", []string{header, cross}, refused},
		{open, "GET", []string{cross}, 200}, // another origin can't read the answer
		{open, "POST", nil, refused},
		{open, "POST", []string{cross}, 403},
		{open, "POST", []string{cross, "Authorization: Basic YTpi"}, 403},
	} {
		path := map[string]string{"GET": "/v1/whoami", "POST": "/v1/keys"}[one.method]
		if got := ask(one.g, one.method, path, one.headers...); got.status != one.status {
			t.Errorf("%s %.60q (keys %t, certificates %t): answered %d, want %d: %s", one.method, one.headers,
				one.g == guarded, one.g == certificates, got.status, one.status, got.body)
		}
	}
	who := as[api.Principal](t, ask(guarded, "GET", "/v1/whoami", cookie), http.StatusOK)
	if who.Principal != "p" || who.Kind != "key" || strings.Join(who.Grants, " ") != "observe: admin:" ||
		who.ExpiresAt != nil {
		t.Errorf("the caller is %+v", who)
	}
	if who := as[api.Principal](t, ask(open, "GET", "/v1/whoami", cookie), http.StatusOK); who.Kind != "anonymous" {
		t.Errorf("without authentication the caller is %+v", who)
	}
	if got, _ := signInWith(open, key, false); got.status != http.StatusBadRequest {
		t.Errorf("signing in without authentication answered %d", got.status)
	}
}
