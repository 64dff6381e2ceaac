package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/issuertest"
)

// certified is a server that answers with the principal of the request, or the reason that there is none.
type certified struct {
	url       string
	server    *tls.Config
	authority *devcert.Authority
	directory *Directory
	trusted   atomic.Bool
}

func newCertified(t *testing.T, file string) *certified {
	t.Helper()
	authority, err := devcert.NewAuthority("clients")
	if err != nil {
		t.Fatal(err)
	}
	c := &certified{authority: authority, directory: newDirectory(t, issuertest.New(t), file)}
	c.trusted.Store(true)
	accepted := Methods{
		Certificates: Certificates{c.directory, func(*x509.Certificate) bool { return c.trusted.Load() }},
		Tokens:       Tokens{c.directory},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, reason := accepted.Authenticate(r)
		if reason != Accepted {
			_, _ = io.WriteString(w, string(reason))
			return
		}
		_, _ = io.WriteString(w, describe(principal))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool()}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	c.url, c.server = server.URL, &tls.Config{RootCAs: x509.NewCertPool()}
	c.server.RootCAs.AddCert(server.Certificate())
	return c
}

// client shows a certificate; none if the authority is nil.
func (c *certified) client(t *testing.T, authority *devcert.Authority, request devcert.Request) *http.Client {
	t.Helper()
	config := c.server.Clone()
	if authority != nil {
		pair, err := authority.Issue(request)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := pair.TLS()
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (c *certified) expect(t *testing.T, client *http.Client, want string, headers ...string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != want {
		t.Errorf("answered %q, %v, want %q", got, err, want)
	}
}

// A client with a certificate is the principal that its SPIFFE ID names. Its certificate is judged at each request of a
// connection: its end, and its authority. A token counts before it.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := newCertified(t, accessFile)
	id := func(text string) *url.URL {
		parsed, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	worker := id("spiffe://example.org/ns/eu/sa/worker")
	client := c.client(t, c.authority, devcert.Request{Name: "w", URIs: []*url.URL{worker}})
	const principal = "certificate:spiffe://example.org/ns/eu/sa/worker certificate lock:jobs"
	c.expect(t, client, principal)
	c.expect(t, client, string(Malformed), "Authorization", "Bearer secret")

	c.expect(t, c.client(t, nil, devcert.Request{}), string(Missing))
	c.expect(t, c.client(t, c.authority, devcert.Request{Name: "spiffe://example.org/ns/eu/sa/worker"}), string(Unknown))
	two := c.client(t, c.authority, devcert.Request{Name: "w", URIs: []*url.URL{worker, id("spiffe://example.org/ns/eu/sa/b")}})
	c.expect(t, two, string(Unknown))
	other := c.client(t, c.authority, devcert.Request{URIs: []*url.URL{id("spiffe://example.org/ns/eu/x/sa/worker")}})
	c.expect(t, other, "certificate:spiffe://example.org/ns/eu/x/sa/worker certificate")

	c.trusted.Store(false)
	c.expect(t, client, string(Unknown))
	c.trusted.Store(true)
	c.directory.now = func() time.Time { return time.Now().Add(devcert.Lifetime + time.Hour) }
	c.expect(t, client, string(Expired))
}

// TestCertificatesOfAChain checks that the validity of each certificate of a chain is judged at each request, that of an
// intermediate authority, too, and that one valid chain is enough.
func TestCertificatesOfAChain(t *testing.T) {
	t.Parallel()
	d := newDirectory(t, issuertest.New(t), `certificates: {rules: [{when: {common_name: w}, grants: ["read:"]}]}`)
	authenticator := Certificates{d, func(*x509.Certificate) bool { return true }}
	valid := func(from, until time.Duration) *x509.Certificate {
		now := time.Now()
		return &x509.Certificate{
			Raw: []byte("w"), Subject: pkix.Name{CommonName: "w"}, NotBefore: now.Add(from), NotAfter: now.Add(until),
		}
	}
	now, ended, notYet := valid(-time.Hour, time.Hour), valid(-time.Hour, -time.Minute), valid(time.Minute, time.Hour)
	for _, c := range []struct {
		chains [][]*x509.Certificate
		want   Reason
	}{
		{[][]*x509.Certificate{{now, now, now}}, Accepted},
		{[][]*x509.Certificate{{now, ended, now}}, Expired},
		{[][]*x509.Certificate{{now, notYet, now}}, Expired},
		{[][]*x509.Certificate{{now, now, ended}}, Expired},
		{[][]*x509.Certificate{{now, ended, now}, {now, now, now}}, Accepted},
	} {
		request := &http.Request{TLS: &tls.ConnectionState{VerifiedChains: c.chains}}
		if _, got := authenticator.Authenticate(request); got != c.want {
			t.Errorf("%d chains, whose intermediate is valid until %s, are judged %q, want %q",
				len(c.chains), c.chains[0][1].NotAfter, got, c.want)
		}
	}
}

// Only a SPIFFE ID is the claim spiffe: a URI of another scheme may be one that the client chose.
func TestOtherURIs(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"spiffe://example.org/a": "certificate:spiffe://example.org/a certificate read:",
		"https://example.org/a":  string(Unknown),
	} {
		c := newCertified(t, `certificates: {principal: "{spiffe}", rules: [{when: {spiffe: "**"}, grants: ["read:"]}]}`)
		id, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		c.expect(t, c.client(t, c.authority, devcert.Request{Name: "w", URIs: []*url.URL{id}}), want)
	}
}

// The names in a certificate can be mapped: the common name by default, and DNS names.
func TestCertificateNames(t *testing.T) {
	t.Parallel()
	for principal, want := range map[string]string{
		"":                    "certificate:w certificate read:",
		`principal: "{dns}"`:  "certificate:a.example certificate read:",
		`principal: "{x}"`:    string(Unknown),
		`principal: "{dns}/"`: "certificate:a.example/ certificate read:",
	} {
		c := newCertified(t, `certificates: {rules: [{when: {dns: "*.example"}, grants: ["read:"]}], `+principal+"}")
		c.expect(t, c.client(t, c.authority, devcert.Request{Name: "w", Names: []string{"a.example"}}), want)
	}
}
