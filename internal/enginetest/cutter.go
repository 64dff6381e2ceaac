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

// Cutter is between a Store and its database, and cuts a connection at the worst moment.
type Cutter struct {
	listener net.Listener
	backend  pgconn.Config
	serving  sync.WaitGroup

	mu   sync.Mutex
	when Moment
	what []byte // a part of the message that is the last on its connection
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
	host, port, err := net.SplitHostPort(c.listener.Addr().String())
	check(t, err)
	quote := func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'" }
	return OpenStore(t, store.Config{DatabaseURL: "host=" + host + " port=" + port + " sslmode=disable user=" +
		quote(c.backend.User) +
		" password=" + quote(c.backend.Password) + " dbname=" + quote(c.backend.Database)})
}

// Cut cuts the next connection on which the client sends a message that contains what. Never ends that.
func (c *Cutter) Cut(when Moment, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.when, c.what = when, []byte(what)
}

// due says when to cut a connection on which the client sends this.
func (c *Cutter) due(message []byte) Moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when != Never && bytes.Contains(message, c.what) {
		return c.when
	}
	return Never
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
		var cutAnswer atomic.Bool
		c.serving.Go(func() {
			pass(server, client, func(message []byte) bool {
				due := c.due(message)
				if due == BeforeClient {
					cutAnswer.Store(true)
				}
				return due != BeforeServer
			})
		})
		c.serving.Go(func() { pass(client, server, func([]byte) bool { return !cutAnswer.Load() }) })
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
