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

	"github.com/fencegate/fencegate/store/postgres"
)

// Cutter is between a client of a database and the database, and cuts a connection at the worst moment.
type Cutter struct {
	listener net.Listener
	backend  pgconn.Config
	serving  sync.WaitGroup

	mu   sync.Mutex
	when Moment
	what []string // parts of the message that is the last on its connection
	then func()
}

// Moment is when the connection is cut.
type Moment int

// The moments.
const (
	Never        Moment = iota
	BeforeServer        // the message does not arrive
	BeforeClient        // it arrives, and takes effect; the answer does not come back
	Late                // nothing is cut; see Hold
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

// Through opens a Store whose connections may be cut. Each message has the text of its statement: none is prepared.
func (c *Cutter) Through(t *testing.T) *postgres.Store {
	t.Helper()
	return OpenStore(t, postgres.Config{DatabaseURL: c.URL(t) + " default_query_exec_mode=cache_describe"})
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

// Hold holds back the answer to the next message that contains all of what, until resume is called. held is closed when
// the server has answered.
func (c *Cutter) Hold(what ...string) (held <-chan struct{}, resume func()) {
	answered, resumed := make(chan struct{}), make(chan struct{})
	c.set(Late, sync.OnceFunc(func() {
		c.Cut(Never, "")
		close(answered)
		<-resumed
	}), what...)
	return answered, sync.OnceFunc(func() { close(resumed) })
}

// CutOnce cuts the connection on which the client sends the next message that contains what. Then it closes done.
func (c *Cutter) CutOnce(when Moment, what string) (done <-chan struct{}) {
	cut := make(chan struct{})
	once := sync.OnceFunc(func() {
		c.Cut(Never, "")
		close(cut)
	})
	c.CutAfter(when, what, once)
	return cut
}

// Cut cuts each connection on which the client sends a message that contains what. Never ends that.
func (c *Cutter) Cut(when Moment, what string) { c.CutAfter(when, what, func() {}) }

// CutAfter is Cut that calls a function before it cuts. With BeforeClient, the server has answered then.
func (c *Cutter) CutAfter(when Moment, what string, then func()) { c.set(when, then, what) }

func (c *Cutter) set(when Moment, then func(), what ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.when, c.what, c.then = when, what, then
}

// due says when to cut a connection on which the client sends this, and what to call before.
func (c *Cutter) due(message []byte) (Moment, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, part := range c.what {
		if !bytes.Contains(message, []byte(part)) {
			return Never, nil
		}
	}
	return c.when, c.then
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
		var beforeClient atomic.Pointer[func() (cut bool)]
		c.serving.Go(func() {
			pass(server, client, func(message []byte) bool {
				switch due, then := c.due(message); due {
				case BeforeServer:
					then()
					return false
				case BeforeClient, Late:
					beforeClient.Store(new(func() bool { then(); return due != Late }))
				}
				return true
			})
		})
		c.serving.Go(func() {
			pass(client, server, func([]byte) bool {
				cut := beforeClient.Swap(nil)
				return cut == nil || !(*cut)()
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
