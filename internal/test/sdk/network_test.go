package sdk

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

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
