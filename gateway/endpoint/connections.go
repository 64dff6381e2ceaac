package endpoint

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencegate/fencegate/gateway/limits"
)

// defaultStrangersMax is how many strangers the gateway answers at a time. Half of them may come from one address. The
// answers that one leaves unread use up to streamsOfOne times 13 KiB of the gateway's memory, and the requests' headers.
const defaultStrangersMax = 8

const (
	// strangerPatience is for how long a stranger keeps its place while others wait for one, from when a handler has begun
	// with its request: before that it may wait for the processor. So it has unhandledPatience times as long until then.
	strangerPatience  = 200 * time.Millisecond
	unhandledPatience = 5
	// patienceTicks divides strangerPatience. While others wait, one part at a time passes, see tickLocked: a gateway that
	// lacks the processor, or was paused, closes no client whose request it had no time to answer.
	patienceTicks = 10
	// waitingMax is how many connections may wait for a place. One of the network that has most of them is closed for the
	// next.
	waitingMax = 512
)

// Connections counts the connections that are open, and closes those beyond the limits as they are accepted. One that is
// idle after a request uses 21 KiB of the gateway's memory, and 37 KiB with TLS, as measured with thousands of them.
//
// A stranger is a connection of HTTP/2 with a request under way over which no credential was accepted. The limit is on
// connections since net/http answers some requests of HTTP/2 by itself, before any handler, and since a closed connection
// frees all that waits for its client to read. An honest client is a stranger until its first request is authorized, for
// some microseconds, so a crowd of them passes through few places.
//
// Beyond the limit, the next connection waits for a place: until another stranger has ended, or the one that began first
// has had its time, see strangerPatience, and is closed. Networks that have the fewest places are served first: many
// connections from one keep nobody else waiting.
type Connections struct {
	max, perAddress int // 0: any number
	StrangersMax    int
	trusted         func(address string) bool
	refused         func()

	patience time.Duration

	mu        sync.Mutex
	open      map[net.Conn]*connection
	networks  map[netip.Prefix]*networkConnections
	strangers list.List     // of *connection; the one that began first is in front
	waiting   []*connection // for a place among the strangers, in order of arrival
	ticking   bool          // tick is to come
	passed    time.Duration // for how long others have waited for a place, in ticks
}

// connection is one that is open.
type connection struct {
	socket   net.Conn // without TLS
	network  netip.Prefix
	known    atomic.Bool   // a credential was accepted, a trusted proxy has many clients, or HTTP/1 has one request at a time
	stranger *list.Element // in strangers; nil: no request is under way, or the connection is known
	handled  bool          // a handler has begun since it became a stranger
	ends     time.Duration // the time of passed at which it has had its time as a stranger
	place    chan struct{} // closed when it need not wait any more
}

// networkConnections counts the connections from one network.
type networkConnections struct{ open, strangers, waiting int }

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

// Changed is the ConnState of the server. It delays a connection that has no place among the strangers, and no other:
// the server calls it in the goroutine that reads the connection's requests.
func (c *Connections) Changed(accepted net.Conn, state http.ConnState) {
	if place := c.follow(accepted, state); place != nil {
		<-place
	}
}

// follow notes the state of a connection, and returns what the connection has to wait for; nil: nothing.
func (c *Connections) follow(accepted net.Conn, state http.ConnState) (place <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state == http.StateNew {
		c.enterLocked(accepted)
		return nil
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

// closeLocked closes a connection because of a limit.
func (c *Connections) closeLocked(one *connection) {
	c.refused()
	_ = one.socket.Close()
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

// enterLocked counts a connection, and closes it if it may not stay open.
func (c *Connections) enterLocked(accepted net.Conn) {
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
		c.closeLocked(one)
	}
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

// beginLocked makes a connection a stranger unless it is known, and returns what it has to wait for.
func (c *Connections) beginLocked(one *connection) (place <-chan struct{}) {
	if one.known.Load() || one.stranger != nil {
		return nil
	}
	one.place = make(chan struct{})
	c.waiting = append(c.waiting, one)
	c.networks[one.network].waiting++
	c.admitLocked()
	if len(c.waiting) > waitingMax {
		c.dropLocked()
	}
	return one.place
}

// admitLocked gives the places that are free to connections that wait, and those of strangers that had their time.
// Otherwise, it is called again when the next stranger has had it.
func (c *Connections) admitLocked() {
	for len(c.waiting) > 0 {
		next := 0
		for i, one := range c.waiting {
			if c.networks[one.network].strangers < c.networks[c.waiting[next].network].strangers {
				next = i
			}
		}
		one := c.waiting[next]
		network := c.networks[one.network]
		full := network.strangers >= c.StrangersMax/2 // and then all that wait are of such networks
		if full || c.strangers.Len() >= c.StrangersMax {
			first := c.firstLocked(func(other *connection) bool { return !full || c.networks[other.network].waiting > 0 })
			if first.ends > c.passed {
				c.tickLocked()
				return
			}
			c.leaveLocked(first)
			c.closeLocked(first)
			if full {
				continue // with the network of the first
			}
		}
		c.stopWaitingLocked(next)
		one.stranger, one.handled = c.strangers.PushBack(one), false
		one.ends = c.passed + unhandledPatience*c.patience
		network.strangers++
	}
}

// firstLocked returns the stranger whose time ends first, of those that are meant.
func (c *Connections) firstLocked(meant func(*connection) bool) (first *connection) {
	for at := c.strangers.Front(); at != nil; at = at.Next() {
		if one := at.Value.(*connection); meant(one) && (first == nil || one.ends < first.ends) {
			first = one
		}
	}
	return first
}

// tickLocked has admitLocked called after a tick. However long that takes, no more than the tick passes for strangers.
// Before it ends, it queues behind the goroutines that wait for the processor, as those of the strangers may.
func (c *Connections) tickLocked() {
	if c.ticking {
		return
	}
	c.ticking = true
	tick := c.patience / patienceTicks
	time.AfterFunc(tick, func() {
		runtime.Gosched()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.passed, c.ticking = c.passed+tick, false
		c.admitLocked()
	})
}

// dropLocked closes the last connection that waits of the network that has most of them.
func (c *Connections) dropLocked() {
	last := 0
	for i, one := range c.waiting {
		if c.networks[one.network].waiting >= c.networks[c.waiting[last].network].waiting {
			last = i
		}
	}
	one := c.waiting[last]
	c.stopWaitingLocked(last)
	c.closeLocked(one)
}

// stopWaitingLocked lets a connection wait no longer.
func (c *Connections) stopWaitingLocked(index int) {
	one := c.waiting[index]
	c.waiting = slices.Delete(c.waiting, index, index+1)
	c.networks[one.network].waiting--
	close(one.place)
}

// endLocked makes a connection a stranger no longer, and gives its place to another.
func (c *Connections) endLocked(one *connection) {
	c.leaveLocked(one)
	c.admitLocked()
}

func (c *Connections) leaveLocked(one *connection) {
	if one.stranger != nil {
		c.strangers.Remove(one.stranger)
		c.networks[one.network].strangers--
		one.stranger = nil
	}
}

// handle notes that a handler has begun with a request of a connection.
func (c *Connections) handle(one *connection) {
	if one == nil || one.known.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.stranger != nil && !one.handled {
		one.handled, one.ends = true, c.passed+c.patience
		c.admitLocked()
	}
}

// know makes a connection a stranger never again.
func (c *Connections) know(one *connection) {
	if one == nil || one.known.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if index := slices.Index(c.waiting, one); index >= 0 { // a credential of a request that was reset
		c.stopWaitingLocked(index)
	}
	c.endLocked(one)
}
