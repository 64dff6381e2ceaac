package gateway

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/gateway/auth"
	"github.com/fencegate/fencegate/gateway/auth/oidc"
	"github.com/fencegate/fencegate/gateway/endpoint"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/gateway/signin"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
	"github.com/fencegate/fencegate/lockclient/api"
)

// issued is a gateway without a database, by which users sign in at two issuers, sso and other.
type issued struct {
	client

	gateway    *Gateway
	sso, other *issuertest.Issuer
	log        *process.Buffer
	access     string // the path of the access file
}

// newIssued starts the gateway. sso knows the client dashboard by its secret, other a public client.
func newIssued(t *testing.T) *issued {
	t.Helper()
	i := &issued{sso: issuertest.New(t), other: issuertest.New(t), log: &process.Buffer{}}
	i.sso.SetClient("dash:board", "s&cret")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	i.access = write("access.yaml", fmt.Sprintf(`
issuers:
  - name: sso
    issuer: %q
    audiences: [api, "dash:board"]
    rules: [{when: {sub: alice}, grants: ["observe:jobs"]}]
    sign_in: {client_id: "dash:board", client_secret_file: %q, label: Example SSO}
  - name: machines
    issuer: https://machines.example.net
    audiences: [api]
    jwks_file: %q
    rules: [{when: {sub: "*"}, grants: ["lock:jobs"]}]
  - name: other
    issuer: %q
    audiences: [fencegate]
    rules: [{when: {sub: "*"}, grants: ["observe:"]}]
    sign_in: {client_id: fencegate}
`, i.sso.URL, write("secret", "s&cret\n"), write("keys", string(i.sso.KeySet())), i.other.URL))
	logger := slog.New(slog.NewTextHandler(i.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	directory, err := auth.LoadDirectory(i.access, logger)
	if err != nil {
		t.Fatal(err)
	}
	i.gateway = withoutDatabase(t, Config{
		Auth: auth.Methods{Tokens: auth.Tokens{Directory: directory}}, SignIn: directory, Logger: logger,
	})
	// All users of the tests are at one address.
	i.gateway.signIn.SignIns, i.gateway.signIn.Exchanges = limits.New(limits.Config{}), limits.New(limits.Config{}).OfAddress("")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		directory.Run(t.Context(), i.gateway.Metrics)
	}()
	t.Cleanup(func() { <-ended })
	await.True(t, "the issuers' documents were read", func() bool {
		_, first := directory.BeginSignIn("sso", oidc.Secrets{}, "")
		_, second := directory.BeginSignIn("other", oidc.Secrets{}, "")
		return first == nil && second == nil
	})
	i.client = serve(t, conforming(t, i.gateway))
	return i
}

// browser keeps cookies, and follows no redirects by itself.
type browser struct {
	client

	t *testing.T
}

func (i *issued) browser(t *testing.T) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newHTTPClient(t, false)
	c.Jar, c.CheckRedirect = jar, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return browser{client{base: i.base, http: c}, t}
}

// follow returns where the answer to a request leads.
func (b browser) follow(address string) *url.URL {
	b.t.Helper()
	response, err := b.http.Get(address)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	location, err := response.Location()
	if err != nil {
		b.t.Fatalf("%s: answered %d without a Location", address, response.StatusCode)
	}
	return location
}

// begin starts a sign-in and returns the callback to which the issuer sends the browser.
func (b browser) begin(issuer, page string) *url.URL {
	b.t.Helper()
	query := url.Values{"return": {page}}.Encode()
	return b.follow(b.follow(b.base + "/v1/sign-in/" + issuer + "/start?" + query).String())
}

// cookies returns the names and values of the cookies for a path.
func (b browser) cookies(path string) map[string]string {
	address, err := url.Parse(b.base + path)
	if err != nil {
		b.t.Fatal(err)
	}
	found := map[string]string{}
	for _, cookie := range b.http.Jar.Cookies(address) {
		found[cookie.Name] = cookie.Value
	}
	return found
}

// expectFailure finishes a sign-in that must fail so, and leave no credential.
func (b browser) expectFailure(about string, callback *url.URL, want api.SignInFailure) {
	b.t.Helper()
	if got := b.follow(callback.String()); got.Query().Get("sign-in") != string(want) || got.Path != "/" {
		b.t.Errorf("%s: led to %s, want the failure %q", about, got, want)
	}
	if cookies := b.cookies("/"); cookies[endpoint.CookieNamePlaintext] != "" {
		b.t.Errorf("%s: signed in with %v", about, cookies)
	}
}

// altered returns a callback with another parameter; without it if the value is "".
func altered(callback *url.URL, parameter, value string) *url.URL {
	other, query := *callback, callback.Query()
	query.Set(parameter, value)
	if value == "" {
		query.Del(parameter)
	}
	other.RawQuery = query.Encode()
	return &other
}

// TestSignInByIssuer checks that a user who comes back from an issuer has the ID token as the credential, and is where
// the sign-in began.
func TestSignInByIssuer(t *testing.T) {
	t.Parallel()
	i := newIssued(t)
	list := as[api.SignIns](t, i.get(t, "/v1/sign-in"), http.StatusOK)
	if fmt.Sprint(list.Issuers) != "[{sso Example SSO} {other other}]" {
		t.Errorf("users sign in by %v", list.Issuers)
	}
	b := i.browser(t)
	callback := b.begin("sso", "/locks/jobs%2F1?tab=x")
	if want := i.base + "/v1/sign-in/sso/callback"; !strings.HasPrefix(callback.String(), want+"?") {
		t.Errorf("the issuer leads to %s, want %s", callback, want)
	}
	if got := b.follow(callback.String()).String(); got != i.base+"/#/locks/jobs%2F1?tab=x" {
		t.Errorf("signed in, the user is at %s", got)
	}
	who := as[api.Principal](t, b.get(t, "/v1/whoami"), http.StatusOK)
	if who.Principal != "sso:alice" || strings.Join(who.Grants, " ") != "observe:jobs" || who.ExpiresAt == nil ||
		time.Until(who.ExpiresAt.Time) > time.Hour+time.Minute {
		t.Errorf("the caller is %+v", who)
	}
	if cookies := b.cookies("/v1/sign-in/sso/callback"); len(cookies) != 1 || strings.Count(cookies[endpoint.CookieNamePlaintext], ".") != 2 {
		t.Errorf("after the sign-in, the browser has the cookies %v, want the token alone", cookies)
	}
	if got := b.follow(callback.String()).Query().Get("sign-in"); got != string(api.SignInExpired) {
		t.Errorf("the same callback again was answered %q", got)
	}
	for _, name := range []string{"machines", "none"} {
		expectProblem(t, i.get(t, "/v1/sign-in/"+name+"/start"), api.CodeNotFound)
	}
}

// TestSignInAttacks checks that a callback signs nobody in unless this browser has begun the sign-in, with this issuer,
// and the issuer's token is for it. Users learn what to do, and no log has a secret.
func TestSignInAttacks(t *testing.T) {
	t.Parallel()
	i := newIssued(t)
	b := i.browser(t)
	callback := b.begin("sso", "")
	i.browser(t).expectFailure("another browser", callback, api.SignInExpired)
	b.expectFailure("another state", altered(callback, "state", "x"), api.SignInExpired)
	b.expectFailure("no state", altered(callback, "state", ""), api.SignInExpired)
	b.begin("other", "")
	atOther := *callback
	atOther.Path = strings.Replace(atOther.Path, "sso", "other", 1)
	b.expectFailure("another issuer's callback", &atOther, api.SignInExpired)
	if n := i.sso.Exchanges() + i.other.Exchanges(); n != 0 {
		t.Errorf("the issuers were asked for %d tokens of sign-ins that this browser has not begun", n)
	}
	b.expectFailure("denied", altered(callback, "error", "access_denied"), api.SignInDenied)
	b.expectFailure("denied, again", callback, api.SignInExpired)
	b.expectFailure("an error", altered(b.begin("sso", ""), "error", "server_error"), api.SignInFailed)
	b.expectFailure("no code", altered(b.begin("sso", ""), "code", ""), api.SignInFailed)

	stolen := i.browser(t).begin("sso", "").Query().Get("code") // and its browser has the verifier
	b.expectFailure("a stolen code", altered(b.begin("sso", ""), "code", stolen), api.SignInFailed)
	unused := i.browser(t).begin("other", "").Query().Get("code")
	b.expectFailure("another issuer's code", altered(b.begin("sso", ""), "code", unused), api.SignInFailed)
	another := i.browser(t)
	used := another.begin("other", "")
	another.follow(used.String())
	b.expectFailure("a used code", altered(b.begin("other", ""), "code", used.Query().Get("code")), api.SignInFailed)

	for about, claims := range map[string]map[string]any{
		"another nonce":           {"nonce": "x"},
		"no nonce":                {"nonce": nil},
		"the audience of the API": {"aud": "api"},
		"another party":           {"aud": []string{"dash:board", "api"}, "azp": "api"},
		"an unknown audience":     {"aud": "unknown"},
		"an expired token":        {"exp": time.Now().Add(-time.Hour).Unix()},
	} {
		i.sso.SetIDToken(claims)
		b.expectFailure(about, b.begin("sso", ""), api.SignInRefused)
	}
	i.sso.SetSigner(i.other)
	i.sso.SetIDToken(map[string]any{"aud": []string{"dash:board", "fencegate"}})
	b.expectFailure("another issuer's token", b.begin("sso", ""), api.SignInRefused)
	i.sso.SetSigner(nil)
	i.sso.SetIDToken(map[string]any{"groups": strings.Repeat("g", signin.CookieBytesMax)})
	b.expectFailure("a long token", b.begin("sso", ""), api.SignInTooLong)
	i.sso.SetIDToken(nil)
	i.sso.SetClient("dash:board", "changed")
	b.expectFailure("another secret", b.begin("sso", ""), api.SignInFailed)
	i.sso.SetDown(true)
	b.expectFailure("an issuer that is down", b.begin("sso", ""), api.SignInUnreachable)
	unread, err := auth.LoadDirectory(i.access, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	i.gateway.signIn.Issuers = unread
	if to := b.follow(b.base + "/v1/sign-in/sso/start?return=/locks").String(); to != b.base+"/?sign-in=unreachable#/locks" {
		t.Errorf("an issuer whose document was never read: led to %s", to)
	}
	for _, secret := range []string{stolen, "eyJ", "s&cret", "s%26cret", b.cookies("/v1/sign-in/sso/start")[signin.AttemptCookiePlaintext]} {
		if log := i.log.String(); secret != "" && strings.Contains(log, secret) {
			t.Errorf("the log has %q:\n%s", secret, log)
		}
	}
}

// TestSignInStaysHere checks that a sign-in leads back to this gateway, whatever page it was begun with, and that its
// cookie goes to the issuer's callback only, where no script can read it.
func TestSignInStaysHere(t *testing.T) {
	t.Parallel()
	i := newIssued(t)
	for _, page := range []string{
		"//elsewhere.test", `/\elsewhere.test`, "https://elsewhere.test/", "javascript:alert(1)", "?x", "#", "/../..", "",
	} {
		b := i.browser(t)
		callback := b.begin("other", page)
		for path, want := range map[string]int{
			"/v1/sign-in/other/callback": 1, "/v1/sign-in/sso/callback": 0, "/v1/sign-in": 0, "/v1/whoami": 0,
		} {
			if cookies := b.cookies(path); len(cookies) != want {
				t.Errorf("%s gets the cookies %v, want %d", path, cookies, want)
			}
		}
		got := b.follow(callback.String())
		if got.Scheme+"://"+got.Host != i.base || got.Path != "/" || got.RawQuery != "" {
			t.Errorf("%q: the sign-in leads to %s", page, got)
		}
	}
	for _, page := range []string{"/\r\nSet-Cookie: a=b", "/ ", "/\x7f", "/ö", strings.Repeat("x", signin.ReturnMax+1)} {
		path := "/v1/sign-in/other/start?" + url.Values{"return": {page}}.Encode()
		expectProblem(t, i.get(t, path), api.CodeInvalidRequest)
	}
	request := httptest.NewRequest(http.MethodGet, "/v1/sign-in/sso/start", nil)
	request.TLS = &tls.ConnectionState{}
	recorder := httptest.NewRecorder()
	i.gateway.ServeHTTP(recorder, request)
	cookie := recorder.Result().Cookies()[0]
	if cookie.Name != "__Host-fencegate-sign-in-sso" || cookie.Path != "/" || !cookie.Secure || !cookie.HttpOnly ||
		cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge != 600 || cookie.Domain != "" {
		t.Errorf("with TLS, the cookie is %s", cookie)
	}
	to := recorder.Header().Get("Location")
	if back := "redirect_uri=https%3A%2F%2Fexample.com%2Fv1%2Fsign-in%2Fsso%2Fcallback"; !strings.Contains(to, back) {
		t.Errorf("with TLS, the issuer is sent %s", to)
	}
}

// TestSignInLimits checks that neither one address nor all of them make a gateway ask an issuer without end.
func TestSignInLimits(t *testing.T) {
	t.Parallel()
	i := newIssued(t)
	const forged = "Cookie: " + signin.AttemptCookiePlaintext + "=state=s&nonce=n&verifier=v"
	// untilLimited returns how many requests were answered before one was refused.
	untilLimited := func(path string) int {
		t.Helper()
		for n := range 1000 {
			got := ask(i.gateway, "GET", path, forged)
			if got.status == http.StatusTooManyRequests || strings.Contains(got.header.Get("Location"), "=unreachable") {
				return n
			}
		}
		t.Errorf("1000 requests of %s were not limited", path)
		return 0
	}
	callbacks := func() {
		t.Helper()
		before := i.other.Exchanges()
		answered := untilLimited("/v1/sign-in/other/callback?state=s&code=c")
		if asked := i.other.Exchanges() - before; asked == 0 || asked != answered {
			t.Errorf("%d callbacks were answered, and the issuer was asked %d times", answered, asked)
		}
	}
	i.gateway.signIn.SignIns = limits.New(limits.Config{RequestsPerSecond: 1})
	callbacks()
	i.gateway.signIn.SignIns = limits.New(limits.Config{RequestsPerSecond: signin.SignInsPerSecond})
	untilLimited("/v1/sign-in/other/start")
	i.gateway.signIn.SignIns = limits.New(limits.Config{})
	i.gateway.signIn.Exchanges = limits.New(limits.Config{RequestsPerSecond: 1}).OfAddress("")
	callbacks()
}
