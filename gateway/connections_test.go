package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/gateway/limits"
	"github.com/fencegate/fencegate/internal/access"
)

// peer is a connection of which only the address counts, and whether it was closed.
type peer struct {
	net.Conn

	address string
	closed  bool
}

func (p *peer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.address))
}

func (p *peer) Close() error {
	p.closed = true
	return nil
}

// TestConnectionLimits checks that connections beyond the total, and beyond those of an address that is not a trusted
// proxy, are closed and counted, and that only the end of one that was open frees a place.
func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	refused := 0
	c := &connections{
		max: 5, perAddress: 2, refused: func() { refused++ },
		trusted: func(address string) bool { return address == "10.0.0.9" },
	}
	var peers []*peer
	open := func(address string, want bool) {
		t.Helper()
		p := &peer{address: address}
		peers = append(peers, p)
		if c.changed(p, http.StateNew); p.closed == want {
			t.Errorf("connection %d, from %s, stays open: %t, want %t", len(peers), address, !p.closed, want)
		}
	}
	open("10.0.0.1:1", true)
	open("10.0.0.1:2", true)
	open("10.0.0.1:3", false)
	c.changed(peers[2], http.StateClosed)
	open("10.0.0.1:4", false)
	open("[2001:db8::1]:1", true)
	open("10.0.0.9:1", true)
	open("10.0.0.9:2", true)
	open("10.0.0.9:3", false)
	c.changed(peers[5], http.StateHijacked)
	open("10.0.0.9:4", true)
	if refused != 3 {
		t.Errorf("%d refused connections were counted, want 3", refused)
	}
	for _, p := range peers {
		c.changed(p, http.StateClosed)
	}
	if len(c.open) != 0 || len(c.networks) != 0 {
		t.Errorf("after the end of all, %d connections and %d networks are remembered", len(c.open), len(c.networks))
	}
}

// TestServerIsBounded checks that the server bounds the size and the time of all that a connection sends.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	s := newKeyedGateway(t, &keysInMemory{}).newServer()
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 ||
		s.MaxHeaderBytes <= 0 || s.ConnState == nil || s.HTTP2.MaxConcurrentStreams <= 0 ||
		s.HTTP2.SendPingTimeout <= 0 || s.HTTP2.PingTimeout <= 0 {
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
	g.failures = limits.New(limits.Config{RequestsPerSecond: 2})
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
