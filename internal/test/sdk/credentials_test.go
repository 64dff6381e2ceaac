package sdk

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencegate/fencegate/internal/devcert"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	"github.com/fencegate/fencegate/lockclient"
	"github.com/fencegate/fencegate/lockclient/api"
)

// guarded is a TLS server before the shared gateway. It demands a client certificate and a token.
type guarded struct {
	url     string
	token   atomic.Value // the one that is accepted
	refused atomic.Int64
	passed  atomic.Int64
	client  *tls.Config // with a certificate that it accepts
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	shared(t)
	authority, err := devcert.NewAuthority("test")
	check(t, err)
	g := &guarded{client: &tls.Config{
		RootCAs: authority.Pool(), NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{issue(t, authority, devcert.Request{Name: "client"})},
	}}
	g.token.Store("fgk_first")
	target, err := url.Parse(gatewayURL)
	check(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		if r.Header.Get("Authorization") != "Bearer "+g.token.Load().(string) {
			g.refused.Add(1)
			writeProblem(w, api.Problem{Status: http.StatusUnauthorized, Code: api.CodeUnauthenticated})
			return
		}
		g.passed.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{issue(t, authority, devcert.Request{Name: "server", Hosts: []string{"127.0.0.1"}})},
		ClientCAs:    authority.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	server.EnableHTTP2, server.Config.ErrorLog = true, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func issue(t *testing.T, authority *devcert.Authority, request devcert.Request) tls.Certificate {
	t.Helper()
	pair, err := authority.Issue(request)
	check(t, err)
	certificate, err := pair.TLS()
	check(t, err)
	return certificate
}

// Every kind of request has the client certificate and the token: calls, heartbeats, streams, and those
// that continue at the next gateway. A token file that changes is read again.
func TestCredentialsOfEveryRequest(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	tokenFile := filepath.Join(t.TempDir(), "token")
	check(t, os.WriteFile(tokenFile, []byte("fgk_first\n"), 0o600))
	client := newClient(t, "https://"+closedAddress, lockclient.WithFailover(g.url), lockclient.WithTLS(g.client),
		lockclient.WithTokenFile(tokenFile),
		lockclient.WithHeaders(func(_ context.Context, header http.Header) { header.Set("Authorization", "another") }))
	ctx, name := await.Context(t), fmt.Sprint(strings.ToLower(t.Name()), "-", names.Add(1))
	useEverything(ctx, t, client, name, func() {})
	if g.refused.Load() != 0 || g.passed.Load() < 15 {
		t.Fatalf("%d requests came without the token, %d with it; expected 0, and 15 or more",
			g.refused.Load(), g.passed.Load())
	}

	check(t, os.WriteFile(tokenFile, nil, 0o600)) // as a writer does that truncates first: the last token stays in use
	g.token.Store("fgk_second")
	await.True(t, "the first token is refused", func() bool {
		_, err := client.API().Lock(ctx, name+"/a")
		return err != nil
	})
	check(t, os.WriteFile(tokenFile, []byte("fgk_second"), 0o600))
	await.True(t, "the second token is used", func() bool {
		_, err := client.API().Lock(ctx, name+"/a")
		return err == nil
	})
}

// A redirect is not followed: the other server receives no request, and so no credential. The error does not show it.
func TestCredentialsStayWithTheGateway(t *testing.T) {
	t.Parallel()
	const token = "fgk_secret"
	other, calls := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{301, 302, 303, 307, 308} {
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+r.URL.Path, status)
		})
		for _, opts := range [][]lockclient.Option{nil, {lockclient.WithHTTPClient(&http.Client{})}} {
			client := newAPI(t, base, append(opts, lockclient.WithToken(token))...)
			_, err := client.Lock(t.Context(), "a")
			wantErr(t, fmt.Sprint("a call with a redirect ", status), err, lockclient.ErrForeignAnswer)
			_, err = client.Acquire(t.Context(), "a", api.AcquireRequest{})
			wantErr(t, fmt.Sprint("an acquire with a redirect ", status), err, lockclient.ErrForeignAnswer)
			if strings.Contains(fmt.Sprintf("%v %+v", err, err), token) {
				t.Errorf("the error shows the token: %v", err)
			}
		}
	}
	if calls.Load() != 0 {
		t.Errorf("the other server received %d requests, expected none", calls.Load())
	}
}

// A server that the authority has not certified receives nothing. Nor does a client get an answer whose own certificate
// is missing.
func TestTLSDemandsCertificates(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	foreign, err := devcert.NewAuthority("foreign")
	check(t, err)
	for name, config := range map[string]*tls.Config{
		"the system's authorities": {Certificates: g.client.Certificates},
		"another authority":        {RootCAs: foreign.Pool(), Certificates: g.client.Certificates},
		"another host":             {RootCAs: g.client.RootCAs, ServerName: "b.test", Certificates: g.client.Certificates},
		"no certificate":           {RootCAs: g.client.RootCAs},
	} {
		client := newAPI(t, g.url, lockclient.WithTLS(config), lockclient.WithToken("fgk_first"))
		_, err := client.Lock(t.Context(), "a")
		wantErr(t, "a call with "+name, err, lockclient.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("with %s the error is %v, expected the reason", name, err)
		}
	}
	if g.passed.Load()+g.refused.Load() != 0 {
		t.Errorf("%d requests arrived, expected none", g.passed.Load()+g.refused.Load())
	}
}

// New refuses unusable credentials, says what they must be, and does not show them.
func TestUnusableCredentials(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	check(t, os.WriteFile(empty, []byte("\n"), 0o600))
	twoLines := filepath.Join(t.TempDir(), "lines")
	check(t, os.WriteFile(twoLines, []byte("fgk_secret\nfgk_more"), 0o600))
	const word = "one word of printable ASCII"
	for _, c := range []struct {
		want string
		opts []lockclient.Option
	}{
		{word, []lockclient.Option{lockclient.WithToken("")}},
		{word, []lockclient.Option{lockclient.WithToken("fgk_secret more")}},
		{word, []lockclient.Option{lockclient.WithToken("fgk_secret\r\nHost: b")}},
		{word, []lockclient.Option{lockclient.WithToken("fgk_secretü")}},
		{word, []lockclient.Option{lockclient.WithTokenFile(empty)}},
		{word, []lockclient.Option{lockclient.WithTokenFile(twoLines)}},
		{"no such file", []lockclient.Option{lockclient.WithTokenFile(empty + "-missing")}},
		{"", []lockclient.Option{lockclient.WithTLS(&tls.Config{}), lockclient.WithHTTPClient(http.DefaultClient)}},
	} {
		_, err := lockclient.New("https://a.test", c.opts...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("New returned %v, expected an error with %q and without the token", err, c.want)
		}
	}
}

// relay passes connections on to the shared gateway, byte by byte.
type relay struct {
	url   string
	close func() // accepts no more connections, and cuts the open ones

	mu   sync.Mutex
	held bool // no part of an answer arrives
	open []net.Conn
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	shared(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	r := &relay{url: "http://" + listener.Addr().String()}
	var relaying sync.WaitGroup
	relaying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relaying.Go(func() { r.pass(client) })
		}
	})
	r.close = func() {
		_ = listener.Close()
		r.cut()
	}
	t.Cleanup(func() {
		r.close()
		relaying.Wait()
	})
	return r
}

func (r *relay) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	gateway, err := net.Dial("tcp", strings.TrimPrefix(gatewayURL, "http://"))
	if err != nil {
		return
	}
	defer func() { _ = gateway.Close() }()
	r.mu.Lock()
	r.open = append(r.open, client, gateway)
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(gateway, client)
		_ = gateway.(*net.TCPConn).CloseWrite()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := gateway.Read(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		held := r.held
		r.mu.Unlock()
		if held {
			continue
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// hold says whether all answers are kept back from now on.
func (r *relay) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, connection := range r.open {
		_ = connection.Close()
	}
	r.open = nil
}
