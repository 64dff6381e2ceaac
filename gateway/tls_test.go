package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/internal/test/testenv/process"
)

// encrypted is a gateway that serves by TLS, with the files of its certificates.
type encrypted struct {
	*harness

	address   string
	authority *devcert.Authority
	dir       string
	log       *process.Buffer
}

func newEncrypted(t *testing.T) *encrypted {
	t.Helper()
	return newEncryptedWith(t, func(handler http.Handler) http.Handler { return handler })
}

// newEncryptedWith is newEncrypted with a handler around that of the gateway.
func newEncryptedWith(t *testing.T, around func(http.Handler) http.Handler) *encrypted {
	t.Helper()
	parallel(t)
	e := &encrypted{dir: t.TempDir(), log: &process.Buffer{}, authority: newAuthority(t)}
	e.writePair(t, e.authority, devcert.Request{Name: "first", Hosts: []string{"127.0.0.1"}})
	e.write(t, "ca.pem", e.authority.PEM)
	certificates, err := LoadCertificates(e.path("cert.pem"), e.path("key.pem"), e.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	certificates.interval = quickInterval
	e.harness = newGateway(t, Config{
		Certificates: certificates, KeepAlive: time.Hour, Logger: slog.New(slog.NewTextHandler(e.log, nil)),
	}, patientDatabase(t))
	e.gateway.HangUpInterval = quickInterval
	e.gateway.handler = around(e.gateway.handler)
	e.address = strings.TrimPrefix(e.serveItself(t).base, "http://")
	e.client = e.connect(t, &tls.Config{}, false)
	return e
}

func newAuthority(t *testing.T) *devcert.Authority {
	t.Helper()
	authority, err := devcert.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// connect returns a client that trusts the gateway's first authority.
func (e *encrypted) connect(t *testing.T, config *tls.Config, http2 bool) client {
	t.Helper()
	config.RootCAs = e.authority.Pool()
	transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return client{base: "https://" + e.address, http: &http.Client{Transport: transport}}
}

func (e *encrypted) path(name string) string { return filepath.Join(e.dir, name) }

func (e *encrypted) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(e.path(name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair writes a certificate of the server, and then its key.
func (e *encrypted) writePair(t *testing.T, authority *devcert.Authority, request devcert.Request) {
	t.Helper()
	pair, err := authority.Issue(request)
	if err != nil {
		t.Fatal(err)
	}
	e.write(t, "cert.pem", pair.Certificate)
	e.write(t, "key.pem", pair.Key)
}

// dial opens a connection, and returns the name in the gateway's certificate.
func (e *encrypted) dial(config *tls.Config) (name string, err error) {
	config.RootCAs = e.authority.Pool()
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: await.Limit}, "tcp", e.address, config)
	if err != nil {
		return "", err
	}
	return connection.ConnectionState().PeerCertificates[0].Subject.CommonName, connection.Close()
}

func (e *encrypted) awaitName(t *testing.T, want string) {
	t.Helper()
	await.True(t, "new connections see the certificate "+want, func() bool {
		name, err := e.dial(&tls.Config{})
		return err == nil && name == want
	})
}

func (e *encrypted) awaitLog(t *testing.T, words string) {
	t.Helper()
	await.True(t, "the log has "+words, func() bool { return strings.Contains(e.log.String(), words) })
}

// The gateway speaks HTTP/1.1 and HTTP/2 by TLS 1.2 and 1.3, no older version, and nothing without TLS.
func TestTLSVersions(t *testing.T) {
	e := newEncrypted(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, http2 := range []bool{false, true} {
			c := e.connect(t, &tls.Config{MinVersion: version, MaxVersion: version}, http2)
			response, err := c.http.Get(c.base + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.TLS.Version != version || (response.ProtoMajor == 2) != http2 {
				t.Errorf("saw %s by %s, expected version %s, HTTP/2: %t", response.Proto,
					tls.VersionName(response.TLS.Version), tls.VersionName(version), http2)
			}
		}
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		if _, err := e.dial(&tls.Config{MinVersion: version, MaxVersion: version}); err == nil ||
			!strings.Contains(err.Error(), "protocol version") {
			t.Errorf("%s: saw %v, expected a refusal of the version", tls.VersionName(version), err)
		}
	}
	plain, err := http.Get("http://" + e.address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = plain.Body.Close()
	if plain.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS the answer is %d, expected 400", plain.StatusCode)
	}
}

// Renewed files are used for new connections, while open ones continue: requests on a kept connection, and streams.
// Files that don't fit together, or that are missing, leave the former certificate in use.
func TestTLSRenewal(t *testing.T) {
	e := newEncrypted(t)
	kept, err := tls.Dial("tcp", e.address, &tls.Config{RootCAs: e.authority.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	requestOver(t, kept)
	stream := e.open(t, lockPath("a", "/watch"))
	stream.next(t, "state")
	e.awaitName(t, "first")

	e.write(t, "key.pem", []byte("no key"))
	e.awaitLog(t, "certificates not reloaded")
	e.awaitName(t, "first")
	if err := os.Remove(e.path("cert.pem")); err != nil {
		t.Fatal(err)
	}
	e.awaitLog(t, "no such file")
	e.awaitName(t, "first")

	e.writePair(t, e.authority, devcert.Request{Name: "second", Hosts: []string{"127.0.0.1"}})
	e.awaitName(t, "second")
	e.awaitLog(t, "certificates reloaded")
	shown, _ := e.scrape(t)
	left := time.Until(time.Unix(int64(shown.value("fencegate_certificate_expiry_timestamp_seconds")), 0))
	if left < devcert.Lifetime-time.Hour || left > devcert.Lifetime {
		t.Errorf("by the metric the certificate expires in %s, want %s", left, devcert.Lifetime)
	}
	requestOver(t, kept)
	e.acquire(t, "a", "worker")
	stream.next(t, "state")
	if strings.Contains(e.log.String(), "PRIVATE KEY") || strings.Contains(e.log.String(), "no key") {
		t.Error("the log shows what is in the file of the key")
	}
}

// requestOver sends a request over a connection that is open, and stays so. A http.Client might open another one, if it
// is short of CPU.
func requestOver(t *testing.T, connection net.Conn) {
	t.Helper()
	if _, err := io.WriteString(connection, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("the connection was closed: %v", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK || response.Close {
		t.Errorf("saw %s, closes: %t, %v, expected 200 on a connection that stays open", response.Status, response.Close, err)
	}
}

// A client certificate of the authority is accepted, and none, too. One that has expired, that another authority has
// signed, or that is not a client's is refused. After the authority was replaced, so is one of the former authority,
// also of a client that resumes its session.
func TestTLSClientCertificates(t *testing.T) {
	e := newEncrypted(t)
	foreign := newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		sessions := tls.NewLRUClientSessionCache(8)
		config := func(authority *devcert.Authority, request devcert.Request) *tls.Config {
			return &tls.Config{
				MaxVersion: version, ClientSessionCache: sessions,
				// Shown also to a gateway that names other authorities.
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					pair, err := authority.Issue(request)
					if err != nil {
						return nil, err
					}
					certificate, err := pair.TLS()
					return &certificate, err
				},
			}
		}
		good := devcert.Request{Name: "worker"}
		e.expectTLS(t, "a certificate of the authority", true, config(e.authority, good))
		e.expectTLS(t, "no certificate", true, &tls.Config{MaxVersion: version})
		e.expectTLS(t, "a foreign certificate", false, config(foreign, good))
		e.expectTLS(t, "an expired certificate", false,
			config(e.authority, devcert.Request{Name: "worker", Until: time.Now().Add(-time.Minute)}))
		e.expectTLS(t, "a server's certificate", false,
			config(e.authority, devcert.Request{Name: "worker", Hosts: []string{"127.0.0.1"}}))

		e.write(t, "ca.pem", foreign.PEM)
		await.True(t, "the other authority's clients are accepted", func() bool {
			return e.try(config(foreign, good)) == nil
		})
		e.expectTLS(t, "a certificate of the former authority", false, config(e.authority, good))
		e.write(t, "ca.pem", e.authority.PEM)
		await.True(t, "the first authority's clients are accepted", func() bool {
			return e.try(config(e.authority, good)) == nil
		})
	}
}

// try sends a request over a connection of its own. Over TLS 1.3, a refusal of the client's certificate arrives after
// the handshake.
func (e *encrypted) try(config *tls.Config) error {
	config.RootCAs = e.authority.Pool()
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: await.Limit}, "tcp", e.address, config)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.ReadAll(connection)
	return err
}

func (e *encrypted) expectTLS(t *testing.T, what string, accepted bool, config *tls.Config) {
	t.Helper()
	if err := e.try(config); (err == nil) != accepted {
		t.Errorf("%s, %s: saw %v, expected that it is accepted: %t", tls.VersionName(config.MaxVersion), what, err, accepted)
	}
}

// A waiter over TLS whose connection ends after another byte leaves the queue.
func TestTLSWaiterHangsUp(t *testing.T) {
	e := newEncrypted(t)
	e.acquire(t, "job", "worker")
	connection, err := tls.Dial("tcp", e.address, &tls.Config{RootCAs: e.authority.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(connection, strings.ReplaceAll(waitRequest("job", "leaver"), "\n", "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	e.awaitQueue(t, "job", "leaver")
	if _, err := io.WriteString(connection, "x"); err != nil {
		t.Fatal(err)
	}
	_ = connection.Close()
	e.awaitQueue(t, "job")
}

// LoadCertificates refuses files that can't be used, and says which.
func TestLoadCertificatesRefuses(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), newAuthority(t)
	pair, err := authority.Issue(devcert.Request{Name: "a", Hosts: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"cert": pair.Certificate, "key": pair.Key, "ca": authority.PEM} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, files := range map[string][3]string{
		"missing": {"missing", "key", ""}, "private key": {"ca", "key", ""}, "key has no certificate": {"cert", "key", "key"},
	} {
		for i := range files {
			if files[i] != "" {
				files[i] = filepath.Join(dir, files[i])
			}
		}
		if _, err := LoadCertificates(files[0], files[1], files[2]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("saw %v, expected an error with %q", err, want)
		}
	}
}

// Trusts follows the file of the clients' authorities.
func TestTrusts(t *testing.T) {
	t.Parallel()
	e := &encrypted{dir: t.TempDir(), authority: newAuthority(t)}
	e.writePair(t, e.authority, devcert.Request{Name: "gateway", Hosts: []string{"127.0.0.1"}})
	first, second := newAuthority(t), newAuthority(t)
	e.write(t, "ca.pem", append(bytes.Clone(e.authority.PEM), first.PEM...))
	c, err := LoadCertificates(e.path("cert.pem"), e.path("key.pem"), e.path("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	expect := func(authority *devcert.Authority, want bool) {
		t.Helper()
		if got := c.Trusts(parseAuthorities(authority.PEM)[0]); got != want {
			t.Errorf("the authority is trusted: %t, want %t", got, want)
		}
	}
	expect(first, true)
	expect(second, false)
	e.write(t, "ca.pem", second.PEM)
	if _, err := c.load(); err != nil {
		t.Fatal(err)
	}
	expect(first, false)
	expect(second, true)
}
