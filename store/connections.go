package store

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout bounds the attempt to connect to one host, unless the database URL or PGCONNECT_TIMEOUT does.
	connectTimeout = 3 * time.Second
	// dropInterval is the least time between two drops of the idle connections for the server's sake: one that is
	// read-only for long is not to be connected to for every statement.
	dropInterval = time.Second
)

// dialer gives up a server whose network is gone, also one that only answers slowly: without it, the kernel waits for
// many minutes.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 2},
	Control:         setUserTimeout,
}

// connections dials all connections of a Store, and closes those that lead to a lost server: a statement on such a
// connection would wait for its timeout, each statement once again.
type connections struct {
	hosts *hosts

	mu         sync.Mutex
	open       map[*connection]struct{}
	generation int // number of drops
	dropped    time.Time
}

// connection is one to a server.
type connection struct {
	net.Conn
	of         *connections
	server     string // its address
	generation int
	dialed     time.Time
}

// manageConnections sets up how the pool connects.
func manageConnections(config *pgxpool.Config) *connections {
	conn := config.ConnConfig
	if conn.ConnectTimeout <= 0 {
		conn.ConnectTimeout = connectTimeout
	}
	c := &connections{hosts: newHosts(conn), open: map[*connection]struct{}{}}
	conn.DialFunc = c.dial
	conn.AfterConnect = func(_ context.Context, made *pgconn.PgConn) error {
		c.hosts.prefer(connectionOf(made).server)
		return nil
	}
	config.BeforeConnect = func(_ context.Context, next *pgx.ConnConfig) error {
		c.hosts.order(next)
		return nil
	}
	return c
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialed := time.Now()
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	made := &connection{Conn: conn, of: c, server: address, generation: c.generation, dialed: dialed}
	c.open[made] = struct{}{}
	return made, nil
}

// Close closes the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// nextGeneration begins the next generation if a connection is of the current one, and if that is older than an
// interval. It reports whether it did.
func (c *connections) nextGeneration(of *connection, interval time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.generation != c.generation || time.Since(c.dropped) < interval {
		return false
	}
	c.generation++
	c.dropped = time.Now()
	return true
}

// to returns the open connections to a server that were dialed before a time.
func (c *connections) to(server string, before time.Time) (found []*connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if conn.server == server && conn.dialed.Before(before) {
			found = append(found, conn)
		}
	}
	return found
}

// connectionOf returns the connection beneath the driver's, and TLS.
func connectionOf(conn *pgconn.PgConn) *connection {
	socket := conn.Conn()
	if encrypted, ok := socket.(*tls.Conn); ok {
		socket = encrypted.NetConn()
	}
	return socket.(*connection)
}

// ConnConfig returns the configuration of the next connection outside the pool. Hosts are in the order in which they
// should be tried now.
func (s *Store) ConnConfig() *pgx.ConnConfig {
	config := s.outside.ConnConfig.Copy()
	s.direct.hosts.order(config)
	return config
}

// dropIdle closes all idle connections after err has shown that a connection can't be used any more: most likely none
// of its age can. Those in use are closed after their statement.
func (s *Store) dropIdle(ctx context.Context, conn *pgx.Conn, err error) {
	interval := dropInterval
	switch {
	case isStale(err):
		interval = 0
	case !isLost(ctx, conn, err):
		return
	}
	if s.connections.nextGeneration(connectionOf(conn.PgConn()), interval) {
		s.pool.Reset()
	}
}

// isLost reports whether err says that the server or the network has ended the connection, or that the server takes no
// writes any more.
func isLost(ctx context.Context, conn *pgx.Conn, err error) bool {
	var state *pgconn.PgError
	if !errors.As(err, &state) {
		return ctx.Err() == nil && conn.IsClosed() // pgx closes it also when ctx ends
	}
	switch state.Code {
	case "57P01", "57P02", "57P03", "25006":
		return true
	}
	return state.Code[:min(2, len(state.Code))] == "08"
}

// A Server is where a connection leads, until it is lost.
type Server struct {
	address string
}

// ServerOf returns the server of a connection that was made with ConnConfig.
func (s *Store) ServerOf(conn *pgx.Conn) Server { return Server{connectionOf(conn.PgConn()).server} }

// Suspect says that a server does not answer: the next connection tries the other hosts first.
func (s *Store) Suspect(server Server) { s.direct.hosts.postpone(server.address) }

// Abandon closes the connections to a server that were made before a time, also those in use: another server has
// taken its place. The outcome of their statements is unknown.
func (s *Store) Abandon(server Server, before time.Time) {
	for _, conn := range s.connections.to(server.address, before) {
		_ = conn.Close()
	}
	s.pool.Reset()
}
