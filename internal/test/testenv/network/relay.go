// Package network is what is between a client and a server, and can fail: for the demo, and for tests.
package network

import (
	"context"
	"io"
	"net"
	"sync"
)

// Relay passes TCP connections on to a server, until it holds what they carry or cuts them.
type Relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	network string
	target  string
	state   state
	arrived chan struct{} // closed once something is held; nil: that has happened
	open    map[net.Conn]struct{}
}

type state int

const (
	passes state = iota
	holds        // what arrives is kept
	cuts         // connections are closed, what was held is lost
)

// NewRelay returns one that passes on to a target: "tcp" and an address, or "unix" and a path.
func NewRelay(ctx context.Context, network, target string) (*Relay, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, network: network, target: target, open: map[net.Conn]struct{}{}}
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

// Address is where clients connect: a port of the loopback interface.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Hold keeps what arrives from now on, in both directions, as a network without packets does: no connection breaks. The
// channel is closed when something has arrived.
func (r *Relay) Hold() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.arrived = holds, make(chan struct{})
	return r.arrived
}

// Pass passes on what was held, and what arrives from now on.
func (r *Relay) Pass() { r.change(func() { r.state = passes }) }

// Cut closes all connections and refuses new ones. What was held is lost.
func (r *Relay) Cut() { r.change(r.cutLocked) }

// PointAt cuts the connections, and passes new ones on to another target of the same network.
func (r *Relay) PointAt(target string) {
	r.change(func() {
		r.cutLocked()
		r.state, r.target = passes, target
	})
}

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.Cut()
	r.running.Wait()
}

func (r *Relay) change(how func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how()
	r.changed.Broadcast()
}

func (r *Relay) cutLocked() {
	r.state = cuts
	for conn := range r.open {
		_ = conn.Close()
	}
	clear(r.open)
}

// carry passes one connection on until both sides have ended it.
func (r *Relay) carry(ctx context.Context, client net.Conn) {
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

func (r *Relay) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == cuts {
		return false
	}
	for _, conn := range conns {
		r.open[conn] = struct{}{}
	}
	return true
}

// copy passes on what one side sends, and then that it has ended.
func (r *Relay) copy(to, from net.Conn) {
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
func (r *Relay) await(from net.Conn, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.state == holds {
		if n > 0 && r.arrived != nil {
			close(r.arrived)
			r.arrived = nil
		}
		r.changed.Wait()
	}
	_, open := r.open[from]
	return open
}
