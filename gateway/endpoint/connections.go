package endpoint

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/fencegate/fencegate/gateway/limits"
)

// defaultStrangersMax is how many strangers the gateway answers at a time. Half of them may come from one address. The
// answers that one leaves unread use up to streamsOfOne times 13 KiB of the gateway's memory, and the requests' headers.
const defaultStrangersMax = 16

// Connections counts the connections that are open, and closes those beyond the limits as they are accepted. One that is
// idle after a request uses 21 KiB of the gateway's memory, and 37 KiB with TLS, as measured with thousands of them.
//
// A stranger is a connection of HTTP/2 with a request under way over which no credential was accepted. Beyond the limit,
// the stranger that began first is closed for the next one. The limit is on connections since net/http answers some
// requests of HTTP/2 by itself, before any handler, and since a closed connection frees all that waits for its client to
// read. An honest client is a stranger until its first request is authorized, for some microseconds.
type Connections struct {
	max, perAddress int // 0: any number
	StrangersMax    int
	trusted         func(address string) bool
	refused         func()

	mu        sync.Mutex
	open      map[net.Conn]*connection
	networks  map[netip.Prefix]*networkConnections
	strangers list.List // of *connection; the one that began first is in front
}

// connection is one that is open.
type connection struct {
	socket   net.Conn // without TLS
	network  netip.Prefix
	known    atomic.Bool   // a credential was accepted, a trusted proxy has many clients, or HTTP/1 has one request at a time
	stranger *list.Element // in strangers; nil: no request is under way, or the connection is known
}

// networkConnections counts the connections from one network.
type networkConnections struct{ open, strangers int }

type connectionKey struct{}

// Context is the ConnContext of the server: connectionOf finds the connection of a request by it.
func (c *Connections) Context(ctx context.Context, accepted net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, c.addLocked(accepted))
}

// connectionOf returns the connection of a request, or nil in tests without a server.
func connectionOf(r *http.Request) *connection {
	found, _ := r.Context().Value(connectionKey{}).(*connection)
	return found
}

// Changed is the ConnState of the server.
func (c *Connections) Changed(accepted net.Conn, state http.ConnState) {
	if closing := c.follow(accepted, state); closing != nil {
		c.refused()
		_ = closing.socket.Close()
	}
}

// follow notes the state of a connection, and returns the connection to close for it.
func (c *Connections) follow(accepted net.Conn, state http.ConnState) (closing *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateNew {
		return c.enterLocked(accepted)
	}
	one := c.open[accepted]
	switch {
	case one == nil: // it was refused
	case state == http.StateActive: // a request is under way; over HTTP/2: the first of several
		return c.beginLocked(one)
	case state == http.StateIdle:
		c.endLocked(one)
	default:
		c.endLocked(one)
		c.removeLocked(accepted, one)
	}
	return nil
}

// addLocked notes a connection before it is counted.
func (c *Connections) addLocked(accepted net.Conn) *connection {
	if c.open == nil {
		c.open, c.networks = map[net.Conn]*connection{}, map[netip.Prefix]*networkConnections{}
	}
	one := c.open[accepted]
	if one == nil {
		one = &connection{socket: accepted}
		if encrypted, ok := accepted.(*tls.Conn); ok {
			one.socket = encrypted.NetConn()
		}
		c.open[accepted] = one
	}
	return one
}

// enterLocked counts a connection, and returns it if it may not stay open.
func (c *Connections) enterLocked(accepted net.Conn) (refused *connection) {
	host, _, _ := net.SplitHostPort(accepted.RemoteAddr().String())
	one := c.addLocked(accepted)
	one.network = limits.Network(host)
	one.known.Store(c.trusted(host))
	network := c.networks[one.network]
	if network == nil {
		network = &networkConnections{}
		c.networks[one.network] = network
	}
	network.open++
	if c.max > 0 && len(c.open) > c.max || c.perAddress > 0 && network.open > c.perAddress && !one.known.Load() {
		c.removeLocked(accepted, one)
		return one
	}
	return nil
}

// Open returns how many connections are open.
func (c *Connections) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

func (c *Connections) removeLocked(accepted net.Conn, one *connection) {
	delete(c.open, accepted)
	network := c.networks[one.network]
	if network.open--; network.open == 0 {
		delete(c.networks, one.network)
	}
}

// beginLocked makes a connection a stranger unless it is known, and returns the one that must end for it.
func (c *Connections) beginLocked(one *connection) (closing *connection) {
	if one.known.Load() || one.stranger != nil {
		return nil
	}
	one.stranger = c.strangers.PushBack(one)
	network := c.networks[one.network]
	network.strangers++
	tooMany := network.strangers > c.StrangersMax/2
	if !tooMany && c.strangers.Len() <= c.StrangersMax {
		return nil
	}
	for at := c.strangers.Front(); ; at = at.Next() {
		oldest := at.Value.(*connection)
		if !tooMany || oldest.network == one.network {
			c.endLocked(oldest)
			return oldest
		}
	}
}

// endLocked makes a connection a stranger no longer.
func (c *Connections) endLocked(one *connection) {
	if one.stranger != nil {
		c.strangers.Remove(one.stranger)
		c.networks[one.network].strangers--
		one.stranger = nil
	}
}

// know makes a connection a stranger never again.
func (c *Connections) know(one *connection) {
	if one == nil || one.known.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(one)
}
