package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout bounds the attempt to connect to one host, unless the database URL or PGCONNECT_TIMEOUT does.
	connectTimeout = 3 * time.Second
	// dropInterval is the least time between two drops of idle connections. Without it, a server that stays read-only
	// would get a new connection for every statement.
	dropInterval = time.Second
)

// dialer gives up a server whose network is gone, or that acknowledges nothing: by itself, the kernel waits for many
// minutes.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 2},
	Control:         setUserTimeout,
}

// connections dials all connections of a Store, and closes those that lead to a lost server, which may be frozen: a
// statement on such a connection would wait for its timeout, each statement once again.
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
	era        atomic.Int64 // of the lineage, in which it was judged; 0: not yet, or it led to a standby or to no schema
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
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	made := &connection{Conn: conn, of: c, server: address, generation: c.generation}
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

// nextGeneration begins the next generation if the connection belongs to the current one, and that is older than the
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

// abandon closes the connections of earlier eras, also those in use: another database has taken the place of theirs. The
// outcome of their statements is unknown.
func (c *connections) abandon(now int64) {
	var earlier []*connection
	c.mu.Lock()
	for conn := range c.open {
		if era := conn.era.Load(); era > 0 && era < now {
			earlier = append(earlier, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range earlier {
		_ = conn.Close()
	}
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

// hosts are those of the database URL. The one that was connected to last is tried first, so that a host that does not
// answer delays one connection and not each. Without target_session_attrs any host would do, and the order stays the
// URL's.
type hosts struct {
	resolve pgconn.LookupFunc
	list    [][]*pgconn.FallbackConfig // of each host, with and without TLS
	chosen  bool                       // target_session_attrs says which hosts will do

	mu        sync.Mutex
	first     int
	addresses map[string]int // → index in list
}

// newHosts reads the hosts of a configuration, and makes it resolve their names through them.
func newHosts(config *pgx.ConnConfig) *hosts {
	h := &hosts{resolve: config.LookupFunc, chosen: config.ValidateConnect != nil, addresses: map[string]int{}}
	own := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	for _, each := range append([]*pgconn.FallbackConfig{own}, config.Fallbacks...) {
		last := len(h.list) - 1
		if last >= 0 && h.list[last][0].Host == each.Host && h.list[last][0].Port == each.Port {
			h.list[last] = append(h.list[last], each)
			continue
		}
		if network, address := pgconn.NetworkAddress(each.Host, each.Port); network == "unix" {
			h.addresses[address] = len(h.list)
		}
		h.list = append(h.list, []*pgconn.FallbackConfig{each})
	}
	config.LookupFunc = h.lookup
	return h
}

// lookup resolves the name of a host, and notes its addresses.
func (h *hosts) lookup(ctx context.Context, host string) ([]string, error) {
	found, err := h.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for index, each := range h.list {
		if each[0].Host != host {
			continue
		}
		maps.DeleteFunc(h.addresses, func(_ string, of int) bool { return of == index })
		for _, ip := range found {
			h.addresses[net.JoinHostPort(ip, strconv.Itoa(int(each[0].Port)))] = index
		}
	}
	return found, nil
}

// prefer moves the host with the address to the front.
func (h *hosts) prefer(address string) { h.choose(address, 0) }

// postpone moves the host with the address to the end.
func (h *hosts) postpone(address string) { h.choose(address, 1) }

func (h *hosts) choose(address string, offset int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if index, known := h.addresses[address]; known && h.chosen {
		h.first = (index + offset) % len(h.list)
	}
}

// order puts the hosts of a configuration into the order in which they should be tried.
func (h *hosts) order(config *pgx.ConnConfig) {
	h.mu.Lock()
	first := h.first
	h.mu.Unlock()
	ordered := slices.Concat(slices.Concat(h.list[first:], h.list[:first])...)
	config.Host, config.Port, config.TLSConfig = ordered[0].Host, ordered[0].Port, ordered[0].TLSConfig
	config.Fallbacks = ordered[1:]
}
