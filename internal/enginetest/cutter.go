package enginetest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/store"
)

// Cutter is between a client of a database and the database, and cuts a connection at the worst moment.
type Cutter struct {
	listener net.Listener
	backend  pgconn.Config
	serving  sync.WaitGroup

	mu   sync.Mutex
	when Moment
	what []byte // a part of the message that is the last on its connection
	then func()
}

// Moment is when the connection is cut.
type Moment int

// The moments.
const (
	Never        Moment = iota
	BeforeServer        // the message does not arrive
	BeforeClient        // it arrives, and takes effect; the answer does not come back
)

// NewCutter returns a Cutter before the database of b. It lets everything through until Cut is called.
func NewCutter(t *testing.T, b *DB) *Cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	c := &Cutter{listener: listener, backend: b.SQL.Config().ConnConfig.Config}
	c.serving.Go(func() { c.serve(t) })
	t.Cleanup(func() {
		listener.Close()
		c.serving.Wait()
	})
	return c
}

// Through opens a Store whose connections may be cut.
func (c *Cutter) Through(t *testing.T) *store.Store {
	t.Helper()
	return OpenStore(t, store.Config{DatabaseURL: c.URL(t)})
}

// URL is that of the database, for connections that may be cut.
func (c *Cutter) URL(t *testing.T) string {
	t.Helper()
	host, port, err := net.SplitHostPort(c.listener.Addr().String())
	check(t, err)
	quote := func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'" }
	return "host=" + host + " port=" + port + " sslmode=disable user=" + quote(c.backend.User) +
		" password=" + quote(c.backend.Password) + " dbname=" + quote(c.backend.Database)
}

// Cut cuts each connection on which the client sends a message that contains what. Never ends that.
func (c *Cutter) Cut(when Moment, what string) { c.CutAfter(when, what, func() {}) }

// CutAfter is Cut that calls a function before it cuts. With BeforeClient, the server has answered then.
func (c *Cutter) CutAfter(when Moment, what string, then func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.when, c.what, c.then = when, []byte(what), then
}

// due says when to cut a connection on which the client sends this, and what to call before.
func (c *Cutter) due(message []byte) (Moment, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when != Never && bytes.Contains(message, c.what) {
		return c.when, c.then
	}
	return Never, nil
}

func (c *Cutter) serve(t *testing.T) {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		network, address := pgconn.NetworkAddress(c.backend.Host, c.backend.Port)
		server, err := c.backend.DialFunc(context.Background(), network, address)
		if err != nil {
			t.Errorf("connect to the database: %v", err)
			client.Close()
			continue
		}
		var beforeClient atomic.Pointer[func()]
		c.serving.Go(func() {
			pass(server, client, func(message []byte) bool {
				switch due, then := c.due(message); due {
				case BeforeServer:
					then()
					return false
				case BeforeClient:
					beforeClient.Store(&then)
				}
				return true
			})
		})
		c.serving.Go(func() {
			pass(client, server, func([]byte) bool {
				then := beforeClient.Load()
				if then != nil {
					(*then)()
				}
				return then == nil
			})
		})
	}
}

// pass hands on what comes from one side to the other, until either is gone or a message is not let through.
func pass(to, from net.Conn, lets func(message []byte) bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || !lets(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
