package gateway

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/internal/access"
	"github.com/fencegate/fencegate/store"
)

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
	newWith := func(authenticator auth.Authenticator) *Gateway {
		g, err := New(Config{Auth: authenticator}, nil, nil, NewMetrics("test"))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	open, certificates := newWith(nil), newWith(auth.Methods{Certificates: certified{}})
	const refused = http.StatusUnsupportedMediaType // passed: the handler wants JSON
	for _, one := range []struct {
		g       *Gateway
		method  string
		headers []string
		status  int
	}{
		{guarded, "GET", []string{cookie}, 200},
		{guarded, "GET", []string{cookie, "Sec-Fetch-Site: same-origin"}, 200},
		{guarded, "GET", []string{cookie, "Sec-Fetch-Site: none"}, 200},
		{guarded, "GET", []string{cookie, cross}, 403},
		{guarded, "GET", []string{cookie, sibling}, 403},
		{guarded, "GET", []string{"Cookie: other=" + key}, 401},
		{guarded, "GET", []string{secure}, 401}, // without TLS no browser has this cookie
		{guarded, "GET", []string{cookie + "; fencegate=" + key}, 401},
		{guarded, "GET", []string{cookie, "Authorization: Bearer fgk_wrong"}, 401},
		{guarded, "GET", []string{header, cross}, 200},                       // no browser sends this header by itself
		{guarded, "GET", []string{cookie, "Authorization: Basic YTpi"}, 200}, // for a proxy
		{guarded, "POST", []string{cookie}, refused},
		{guarded, "POST", []string{cookie, "Sec-Fetch-Site: same-origin"}, refused},
		{guarded, "POST", []string{cookie, "Origin: http://example.com"}, refused}, // httptest's host
		{guarded, "POST", []string{cookie, cross}, 403},
		{guarded, "POST", []string{cookie, sibling}, 403},
		{guarded, "POST", []string{cookie, there}, 403},
		{guarded, "POST", []string{cookie, "Origin: null"}, 403},
		{guarded, "POST", []string{cross}, 403},
		{certificates, "POST", nil, refused},
		{certificates, "POST", []string{"Sec-Fetch-Site: same-origin"}, refused},
		{certificates, "POST", []string{cross}, 403}, // the browser shows the certificate with it
		{certificates, "POST", []string{there}, 403},
		{certificates, "POST", []string{cross, "Authorization: Basic YTpi"}, 403},
		{guarded, "POST", []string{header, cross}, refused},
		{open, "GET", nil, 200},
		{open, "GET", []string{cross}, 200}, // another origin can't read the answer
		{open, "POST", nil, refused},
		{open, "POST", []string{cross}, 403},
		{open, "POST", []string{there}, 403},
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
