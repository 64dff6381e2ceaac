package endpoint

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencegate/fencegate/internal/test/testenv/await"
)

// peer is a connection of which only the address counts, and whether it was closed.
type peer struct {
	net.Conn

	address string
	closed  atomic.Bool
	placed  time.Time // when it had a place, see arrive
}

func (p *peer) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(p.address))
}

func (p *peer) Close() error {
	p.closed.Store(true)
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
		if c.Changed(p, http.StateNew); p.closed.Load() == want {
			t.Errorf("connection %d, from %s, stays open: %t, want %t", len(peers), address, !p.closed.Load(), want)
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
		if p.closed.Load() {
			t.Errorf("%s was closed", name)
		}
	}
}

// newStrangers returns Connections with so many places for strangers, half of them for one address.
func newStrangers(places int) *Connections {
	return &Connections{
		StrangersMax: places, patience: strangerPatience, refused: func() {}, trusted: func(string) bool { return false },
	}
}

// arrive opens a connection in a bubble of synctest, and begins a request. It returns when the connection has a place
// or waits for one.
func arrive(c *Connections, address string) *peer {
	p := &peer{address: address + ":1"}
	c.Changed(p, http.StateNew)
	go func() {
		c.Changed(p, http.StateActive)
		p.placed = time.Now()
	}()
	synctest.Wait()
	return p
}

// expectPlace lets the time pass, and checks when a connection had a place.
func expectPlace(t *testing.T, name string, p *peer, want time.Time) {
	t.Helper()
	time.Sleep(time.Until(want) + time.Hour)
	synctest.Wait()
	if p.placed.IsZero() || !p.placed.Equal(want) {
		t.Errorf("%s has a place at %s, want %s", name, p.placed.Format(time.StampMilli), want.Format(time.StampMilli))
	}
}

// TestStrangersHaveTheirTime checks that the stranger that began first is closed once it has had its time and others
// wait, and that one of the network that has most waiters is closed when too many wait.
func TestStrangersHaveTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, begun := newStrangers(2), time.Now()
		first, second := arrive(c, "10.0.0.1"), arrive(c, "10.0.0.1")
		expectPlace(t, "the second", second, begun.Add(unhandledPatience*strangerPatience))
		if !first.closed.Load() || second.closed.Load() {
			t.Errorf("closed are the first: %t, the second: %t; want the first", first.closed.Load(), second.closed.Load())
		}
		third := arrive(c, "10.0.0.1")
		expectPlace(t, "the third", third, time.Now().Add(unhandledPatience*strangerPatience))
		if !second.closed.Load() || third.closed.Load() {
			t.Errorf("closed are the second: %t, the third: %t; want the second", second.closed.Load(), third.closed.Load())
		}
		var crowd []*peer
		for range waitingMax + 1 {
			crowd = append(crowd, arrive(c, "10.0.0.1"))
		}
		for i, p := range crowd {
			if last := i == waitingMax; p.closed.Load() != last {
				t.Errorf("connection %d of those that wait is closed: %t, want %t", i+1, p.closed.Load(), last)
			}
		}
		time.Sleep(time.Hour) // the others have a place, too
	})
}

// TestStrangersEndWhenHandled checks that a connection waits for a shorter time once a stranger's handler has begun, and
// that a handler of the request before does not count.
func TestStrangersEndWhenHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, begun := newStrangers(2), time.Now()
		first, second, third := arrive(c, "10.0.0.1"), arrive(c, "10.0.0.1"), arrive(c, "10.0.0.1")
		c.handle(c.open[second])                          // of a request that was reset
		time.Sleep(strangerPatience/2 + time.Millisecond) // after a tick, not with it
		c.handle(c.open[first])
		time.Sleep(strangerPatience / 2)
		c.handle(c.open[first]) // its next request
		time.Sleep(strangerPatience / 2)
		synctest.Wait()
		c.handle(c.open[second])
		expectPlace(t, "the second", second, begun.Add(3*strangerPatience/2))
		expectPlace(t, "the third", third, begun.Add(5*strangerPatience/2))
	})
}

// TestStrangersEndInTheirOrder checks that a connection waits until the first stranger that may end for it has had its
// time, though another connection waits for a later one.
func TestStrangersEndInTheirOrder(t *testing.T) {
	t.Parallel()
	t.Run("another network", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, begun := newStrangers(4), time.Now()
			b1 := arrive(c, "10.0.0.2")
			arrive(c, "10.0.0.1")
			arrive(c, "10.0.0.1")
			a3, b2 := arrive(c, "10.0.0.1"), arrive(c, "10.0.0.2")
			c1 := arrive(c, "10.0.0.3")
			c.handle(c.open[b1])
			expectPlace(t, "c1", c1, begun.Add(strangerPatience))
			expectPlace(t, "a3", a3, begun.Add(unhandledPatience*strangerPatience))
			if !b1.closed.Load() || b2.closed.Load() {
				t.Errorf("closed are b1: %t, b2: %t; want b1", b1.closed.Load(), b2.closed.Load())
			}
		})
	})
	t.Run("two networks of which each has half", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, begun := newStrangers(4), time.Now()
			arrive(c, "10.0.0.1")
			arrive(c, "10.0.0.1")
			b1, b2 := arrive(c, "10.0.0.2"), arrive(c, "10.0.0.2")
			c.handle(c.open[b2])
			a3, b3 := arrive(c, "10.0.0.1"), arrive(c, "10.0.0.2")
			expectPlace(t, "b3", b3, begun.Add(strangerPatience))
			expectPlace(t, "a3", a3, begun.Add(unhandledPatience*strangerPatience))
			if b1.closed.Load() || !b2.closed.Load() {
				t.Errorf("closed are b1: %t, b2: %t; want b2", b1.closed.Load(), b2.closed.Load())
			}
		})
	})
}

// TestStrangersOfOtherAddresses checks that a client from an address of its own waits until one stranger has had its
// time, for its preface and again for its first request, while hundreds wait from addresses that have all places.
func TestStrangersOfOtherAddresses(t *testing.T) {
	t.Parallel()
	for _, addresses := range []int{2, defaultStrangersMax} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newStrangers(defaultStrangersMax)
				for i := range 2 * waitingMax {
					arrive(c, fmt.Sprintf("10.0.0.%d", i%addresses))
				}
				for range waitingMax {
					honest, begun := &peer{address: "10.0.1.1:1"}, time.Now()
					c.Changed(honest, http.StateNew)
					for range 2 {
						c.Changed(honest, http.StateActive)
						c.Changed(honest, http.StateIdle)
					}
					if took := time.Since(begun); took > 2*unhandledPatience*strangerPatience || honest.closed.Load() {
						t.Errorf("the client had its places after %s (closed: %t), want 2 s at most", took, honest.closed.Load())
					}
					c.Changed(honest, http.StateClosed)
				}
				time.Sleep(time.Hour) // the others have a place, too
			})
		})
	}
}

// TestStrangersOfAPausedGateway checks that a pause of the gateway is not counted as time that strangers had: they stay
// open until the gateway had the time to answer them.
func TestStrangersOfAPausedGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newStrangers(4)
		c.refused = func() { time.Sleep(time.Hour) } // the pause
		first, second := arrive(c, "10.0.0.1"), arrive(c, "10.0.0.1")
		time.Sleep(time.Hour) // nobody waits: neither is this
		arrive(c, "10.0.0.1")
		fourth := arrive(c, "10.0.0.1")
		waits := time.Now()
		time.Sleep(unhandledPatience*strangerPatience - strangerPatience/2 + time.Millisecond) // after a tick, not with it
		c.handle(c.open[second])
		time.Sleep(time.Until(waits.Add(unhandledPatience*strangerPatience + time.Hour)))
		synctest.Wait()
		if !first.closed.Load() || second.closed.Load() {
			t.Errorf("after the pause, closed are the first: %t, the second: %t; want the first", first.closed.Load(),
				second.closed.Load())
		}
		expectPlace(t, "the fourth", fourth, time.Now().Add(strangerPatience/2+time.Hour))
	})
}

// TestStrangersKnownWhileTheyWait checks that a connection waits no longer when a credential of a request before, which
// was reset, is accepted, and that it is not closed for the next.
func TestStrangersKnownWhileTheyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, begun := newStrangers(2), time.Now()
		first := arrive(c, "10.0.0.1")
		known := arrive(c, "10.0.0.1")
		c.know(c.open[known])
		next := arrive(c, "10.0.0.1")
		expectPlace(t, "the known one", known, begun)
		expectPlace(t, "the next", next, begun.Add(unhandledPatience*strangerPatience))
		if !first.closed.Load() || known.closed.Load() {
			t.Errorf("closed are the first: %t, the known one: %t; want the first", first.closed.Load(), known.closed.Load())
		}
	})
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
			if !p.closed.Load() {
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
