package gateway

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
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
		max: 5, perAddress: 2, strangersMax: 4, refused: func() { refused++ },
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

// TestStrangers checks that the busy connection without a credential that began first is closed for the next: of the same
// address beyond half of the limit, otherwise of all. A known connection, an idle one and a trusted proxy stay open.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := &connections{
		strangersMax: 4, refused: func() {}, trusted: func(address string) bool { return address == "10.0.0.9" },
	}
	peers, accepted := map[string]*peer{}, map[string]net.Conn{}
	begin := func(name, address string) {
		peers[name] = &peer{address: address + ":1"}
		accepted[name] = tls.Server(peers[name], nil)
		c.context(t.Context(), accepted[name])
		c.changed(accepted[name], http.StateNew)
		c.changed(accepted[name], http.StateActive)
		c.changed(accepted[name], http.StateActive) // twice is once
	}
	expect := func(open string) {
		t.Helper()
		var got []string
		for name, p := range peers {
			if !p.closed {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != open {
			t.Errorf("open are %q, want %q", strings.Join(got, " "), open)
		}
	}
	begin("a-known", "10.0.0.1")
	c.know(c.open[accepted["a-known"]])
	begin("a-idle", "10.0.0.1")
	c.changed(accepted["a-idle"], http.StateIdle)
	begin("a1", "10.0.0.1")
	begin("b1", "10.0.0.2")
	begin("proxy1", "10.0.0.9")
	begin("proxy2", "10.0.0.9")
	begin("proxy3", "10.0.0.9")
	begin("a2", "10.0.0.1")
	expect("a-idle a-known a1 a2 b1 proxy1 proxy2 proxy3")
	begin("b2", "10.0.0.2")
	begin("b3", "10.0.0.2") // more than half: not a1, which began before b1
	expect("a-idle a-known a1 a2 b2 b3 proxy1 proxy2 proxy3")
	begin("c1", "10.0.0.3") // more than all
	expect("a-idle a-known a2 b2 b3 c1 proxy1 proxy2 proxy3")
	for _, each := range accepted {
		c.changed(each, http.StateClosed)
	}
	if len(c.open) != 0 || len(c.networks) != 0 || c.strangers.Len() != 0 {
		t.Errorf("after the end of all, %d connections, %d networks and %d strangers are remembered",
			len(c.open), len(c.networks), c.strangers.Len())
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
