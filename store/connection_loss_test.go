package store_test

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

// cutter is a proxy between a Store and its database that cuts a connection at a chosen message.
type cutter struct {
	listener net.Listener
	backend  pgconn.Config
	serving  sync.WaitGroup

	mu   sync.Mutex
	when moment
	what []byte // a part of the message that is the last on its connection
}

// moment is when the connection is cut: before the server has the message, or before the client has the answer.
type moment int

const (
	never        moment = iota
	beforeServer        // the message does not arrive
	beforeClient        // it arrives, and takes effect; the answer does not come back
)

func newCutter(t *testing.T, b *testbed) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: listener, backend: b.sql.Config().ConnConfig.Config}
	c.serving.Go(func() { c.serve(t) })
	t.Cleanup(func() {
		listener.Close()
		c.serving.Wait()
	})
	return c
}

// through opens a Store whose connections may be cut.
func (c *cutter) through(t *testing.T) *store.Store {
	t.Helper()
	host, port, err := net.SplitHostPort(c.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	quote := func(text string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'" }
	return openStore(t, store.Config{DatabaseURL: "host=" + host + " port=" + port + " sslmode=disable user=" +
		quote(c.backend.User) +
		" password=" + quote(c.backend.Password) + " dbname=" + quote(c.backend.Database)})
}

func (c *cutter) cut(when moment, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.when, c.what = when, []byte(what)
}

// due says when to cut a connection on which the client sends this.
func (c *cutter) due(message []byte) moment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when != never && bytes.Contains(message, c.what) {
		return c.when
	}
	return never
}

func (c *cutter) serve(t *testing.T) {
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
				if due == beforeClient {
					cutAnswer.Store(true)
				}
				return due != beforeServer
			})
		})
		c.serving.Go(func() { pass(client, server, func([]byte) bool { return !cutAnswer.Load() }) })
	}
}

// pass forwards messages from one side to the other, until either is gone or a message is not let through.
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

// TestWriteWhoseConnectionIsCut checks that a write whose connection breaks before its answer has an unknown outcome,
// and that the same write, sent again, is applied exactly once (P10).
func TestWriteWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when  moment
		again string
	}{
		"before the write arrives":    {beforeServer, "admitted v2"},
		"before the answer gets back": {beforeClient, "admitted v2 replayed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t)
			cutter := newCutter(t, b)
			s := &fixture{testbed: &testbed{Store: cutter.through(t), url: b.url, sql: b.sql}, lock: "lock"}
			if err := s.do(t.Context(), acquire, wrote(with(newest, sequence(1)))); err != nil {
				t.Fatal(err)
			}
			write := with(newest, sequence(2), value("this write is cut"))(s)
			cutter.cut(c.when, string(write.Value))
			_, err := bySet(t.Context(), s.Store, write)
			if err := expectUnavailable(err, store.OutcomeUnknown); err != nil {
				t.Error(err)
			}
			cutter.cut(never, "")
			for i, want := range []string{c.again, "admitted v2 replayed"} {
				result, err := bySet(t.Context(), s.Store, write)
				if got := brief(result); err != nil || got != want {
					t.Errorf("sent again, time %d: %s (%v), want %s", i+1, got, err, want)
				}
			}
		})
	}
}

// TestAcquireWhoseConnectionIsCut checks that an acquire whose answer was lost returns the lease that was granted when
// it is sent again with its request_id.
func TestAcquireWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	b := newTestbed(t)
	cutter := newCutter(t, b)
	s := &fixture{testbed: &testbed{Store: cutter.through(t), url: b.url, sql: b.sql}, lock: "lock"}
	if err := s.do(t.Context(), acquire, release); err != nil {
		t.Fatal(err)
	}
	cutter.cut(beforeClient, "requester")
	if err := expectUnavailable(request("r")(t.Context(), s), store.OutcomeUnknown); err != nil {
		t.Error(err)
	}
	cutter.cut(never, "")
	if err := s.do(t.Context(), request("r")); err != nil {
		t.Fatal(err)
	}
	var leases int
	err := b.sql.QueryRow(t.Context(), "select count(*) from fence.leases where request_id = 'r'").Scan(&leases)
	if err != nil || leases != 1 || s.newest().Token != s.leases[0].Token+1 {
		t.Errorf("%d leases were granted (%v), the newest is %+v", leases, err, s.newest())
	}
}
