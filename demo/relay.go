package demo

import (
	"context"
	"io"
	"net"
	"sync"
)

// relay is a network between a client and a server. It passes connections on, until it holds what they carry or cuts
// them.
type relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	network string
	target  string
	state   relayState
	arrived chan struct{} // closed once something is held; nil: that has happened
	open    map[net.Conn]struct{}
}

type relayState int

const (
	relayPasses relayState = iota
	relayHolds             // what arrives is kept
	relayCuts              // connections are closed, what was held is lost
)

// newRelay returns a relay that passes on to a target: "tcp" and an address, or "unix" and a path.
func newRelay(ctx context.Context, network, target string) (*relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: listener, network: network, target: target, open: map[net.Conn]struct{}{}}
	r.changed = sync.NewCond(&r.mu)
	r.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.carry(ctx, client) })
		}
	})
	return r, nil
}

// address is where clients connect.
func (r *relay) address() string { return r.listener.Addr().String() }

// hold keeps what arrives from now on, in both directions. The channel is closed when something has arrived.
func (r *relay) hold() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.arrived = relayHolds, make(chan struct{})
	return r.arrived
}

// pass passes on what was held, and what arrives from now on.
func (r *relay) pass() { r.change(func() { r.state = relayPasses }) }

// cut closes all connections and refuses new ones. What was held is lost.
func (r *relay) cut() { r.change(r.cutLocked) }

// pointAt cuts the connections, and passes new ones on to another address.
func (r *relay) pointAt(address string) {
	r.change(func() {
		r.cutLocked()
		r.state, r.target = relayPasses, address
	})
}

// close ends the relay.
func (r *relay) close() {
	_ = r.listener.Close()
	r.cut()
	r.running.Wait()
}

func (r *relay) change(how func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how()
	r.changed.Broadcast()
}

func (r *relay) cutLocked() {
	r.state = relayCuts
	for conn := range r.open {
		_ = conn.Close()
	}
	clear(r.open)
}

// carry passes one connection on until both sides have ended it.
func (r *relay) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	r.mu.Lock()
	network, target := r.network, r.target
	r.mu.Unlock()
	server, err := (&net.Dialer{}).DialContext(ctx, network, target)
	if err != nil {
		return
	}
	defer server.Close()
	if !r.add(client, server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { r.copy(client, server) })
	r.copy(server, client)
	back.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, client)
	delete(r.open, server)
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == relayCuts {
		return false
	}
	for _, conn := range conns {
		r.open[conn] = struct{}{}
	}
	return true
}

// copy passes on what one side sends, and then that it has ended.
func (r *relay) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !r.await(from, n) {
			return
		}
		if _, failed := to.Write(buffer[:n]); failed != nil {
			err = io.ErrClosedPipe
		}
		if err != nil {
			break
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// await waits while what has arrived is held. It returns false if the connection was cut.
func (r *relay) await(from net.Conn, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.state == relayHolds {
		if n > 0 && r.arrived != nil {
			close(r.arrived)
			r.arrived = nil
		}
		r.changed.Wait()
	}
	_, open := r.open[from]
	return open
}
