package endpoint

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencegate/fencegate/internal/testenv/await"
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
	c := &Connections{
		max: 5, perAddress: 2, StrangersMax: 4, refused: func() { refused++ },
		trusted: func(address string) bool { return address == "10.0.0.9" },
	}
	var peers []*peer
	open := func(address string, want bool) {
		t.Helper()
		p := &peer{address: address}
		peers = append(peers, p)
		if c.Changed(p, http.StateNew); p.closed == want {
			t.Errorf("connection %d, from %s, stays open: %t, want %t", len(peers), address, !p.closed, want)
		}
	}
	open("10.0.0.1:1", true)
	open("10.0.0.1:2", true)
	open("10.0.0.1:3", false)
	c.Changed(peers[2], http.StateClosed)
	open("10.0.0.1:4", false)
	open("[2001:db8::1]:1", true)
	open("10.0.0.9:1", true)
	open("10.0.0.9:2", true)
	open("10.0.0.9:3", false)
	c.Changed(peers[5], http.StateHijacked)
	open("10.0.0.9:4", true)
	if refused != 3 {
		t.Errorf("%d refused connections were counted, want 3", refused)
	}
	for _, p := range peers {
		c.Changed(p, http.StateClosed)
	}
	if len(c.open) != 0 || len(c.networks) != 0 {
		t.Errorf("after the end of all, %d connections and %d networks are remembered", len(c.open), len(c.networks))
	}
}

// TestStrangersWait checks that a connection waits while the places are taken, until a stranger has ended or is known,
// and that one of another network goes before those of a network that has places.
func TestStrangersWait(t *testing.T) {
	t.Parallel()
	c := &Connections{
		StrangersMax: 4, patience: time.Hour, refused: func() {}, trusted: func(string) bool { return false },
	}
	begun := make(chan string)
	peers := map[string]*peer{}
	open := func(name, address string) {
		peers[name] = &peer{address: address + ":1"}
		c.Changed(peers[name], http.StateNew)
	}
	begin := func(name, address string) {
		open(name, address)
		go func() {
			c.Changed(peers[name], http.StateActive)
			begun <- name
		}()
	}
	expect := func(name string) {
		t.Helper()
		if got := await.Receive(t, "a connection has a place", begun); got != name {
			t.Errorf("%s has a place, want %s", got, name)
		}
	}
	waits := func(count int) {
		t.Helper()
		await.True(t, "the connections wait", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.waiting) == count
		})
	}
	for _, name := range []string{"a1", "a2"} {
		begin(name, "10.0.0.1")
		expect(name)
	}
	begin("a3", "10.0.0.1") // more than half
	waits(1)
	for _, name := range []string{"b1", "b2"} {
		begin(name, "10.0.0.2")
		expect(name)
	}
	begin("c1", "10.0.0.3") // more than all
	waits(2)
	c.know(c.open[peers["a1"]])
	expect("c1")
	c.Changed(peers["b1"], http.StateIdle)
	expect("a3")
	begin("b3", "10.0.0.2")
	waits(1)
	c.Changed(peers["b2"], http.StateClosed)
	expect("b3")
	for name, p := range peers {
		if p.closed {
			t.Errorf("%s was closed", name)
		}
	}
}

// TestStrangersHaveTheirTime checks that the stranger that began first is closed once it has had its time and others
// wait, and that one of the network that has most waiters is closed when too many wait.
func TestStrangersHaveTheirTime(t *testing.T) {
	t.Parallel()
	c := &Connections{StrangersMax: 2, patience: time.Millisecond, refused: func() {}, trusted: func(string) bool { return false }}
	first, second := &peer{address: "10.0.0.1:1"}, &peer{address: "10.0.0.1:2"}
	for _, p := range []*peer{first, second} {
		c.Changed(p, http.StateNew)
		c.Changed(p, http.StateActive)
	}
	if !first.closed || second.closed {
		t.Errorf("closed are the first: %t, the second: %t; want the first", first.closed, second.closed)
	}
	c.patience = time.Hour
	c.open[second].handled.Store(1)
	third := &peer{address: "10.0.0.1:3"}
	c.Changed(third, http.StateNew)
	c.Changed(third, http.StateActive)
	if !second.closed || third.closed {
		t.Errorf("closed are the second: %t, the third: %t; want the second, whose request was handled long ago",
			second.closed, third.closed)
	}
	var crowd sync.WaitGroup
	for range waitingMax + 1 {
		crowd.Go(func() {
			p := &peer{address: "10.0.0.1:4"}
			c.Changed(p, http.StateNew)
			c.Changed(p, http.StateActive)
			c.Changed(p, http.StateClosed)
		})
	}
	await.True(t, "as many wait as may", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == waitingMax && len(c.open) == waitingMax+3
	})
	c.know(c.open[third])
	crowd.Wait()
}

// TestStrangers checks that the busy connection without a credential that began first is closed for the next: of the same
// address beyond half of the limit, otherwise of all. A known connection, an idle one and a trusted proxy stay open.
func TestStrangers(t *testing.T) {
	t.Parallel()
	c := &Connections{
		StrangersMax: 4, refused: func() {}, trusted: func(address string) bool { return address == "10.0.0.9" },
	}
	peers, accepted := map[string]*peer{}, map[string]net.Conn{}
	begin := func(name, address string) {
		peers[name] = &peer{address: address + ":1"}
		accepted[name] = tls.Server(peers[name], nil)
		c.Context(t.Context(), accepted[name])
		c.Changed(accepted[name], http.StateNew)
		c.Changed(accepted[name], http.StateActive)
		c.Changed(accepted[name], http.StateActive) // twice is once
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
	c.Changed(accepted["a-idle"], http.StateIdle)
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
		c.Changed(each, http.StateClosed)
	}
	if len(c.open) != 0 || len(c.networks) != 0 || c.strangers.Len() != 0 {
		t.Errorf("after the end of all, %d connections, %d networks and %d strangers are remembered",
			len(c.open), len(c.networks), c.strangers.Len())
	}
}
