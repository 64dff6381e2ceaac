// Package enginetest has databases and engines for the tests of the store, of its machines and of the engine.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/checks"
	"github.com/fencegate/fencegate/internal/test/testenv/await"
	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/postgres"
)

// DB is a migrated database of a test, a Store on it, and SQL past the Store to look at rows and to break things.
type DB struct {
	*postgres.Store
	URL string
	SQL *pgxpool.Pool
}

// New returns a migrated database of its own.
func New(t testing.TB) *DB {
	t.Helper()
	return On(t, pgtest.Migrated(t))
}

// On returns a migrated database that is there.
func On(t testing.TB, url string) *DB {
	t.Helper()
	sql, err := pgxpool.New(t.Context(), url)
	check(t, err)
	t.Cleanup(sql.Close)
	b := &DB{OpenStore(t, postgres.Config{DatabaseURL: url}), url, sql}
	// So that there are tokens below the first that is granted.
	b.Exec(t, "select setval('fence.tokens', greatest(1000, last_value)) from fence.tokens")
	return b
}

// OpenStore opens a Store that is closed at the end of the test.
func OpenStore(t testing.TB, config postgres.Config) *postgres.Store {
	t.Helper()
	opened, err := postgres.Open(t.Context(), config)
	check(t, err)
	t.Cleanup(opened.Close)
	return opened
}

// Exec runs SQL beside the Store and expects it to work.
func (b *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.SQL.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// Dump is everything that fencegate keeps, one line for each row: what was not changed reads the same. A fence under
// which nothing was granted or written is nothing but a row that can be locked.
func (b *DB) Dump(ctx context.Context) (string, error) {
	var lines []string
	err := b.SQL.QueryRow(ctx, `
		select array_agg(line order by line) from (
			select 'fence ' || (to_jsonb(t) || jsonb_build_object('subtree_token', nullif(t.subtree_token, 0)))::text
			from fence.fences t where greatest(t.granted_token, t.last_token) > 0 union all
			select 'session ' || to_json(t) from fence.sessions t union all
			select 'waiter ' || to_json(t) from fence.waiters t union all
			select 'lease ' || to_json(t) from fence.leases t union all
			select 'record ' || to_json(t) from fence.records t union all
			select 'policy ' || to_json(t) from fence.policies t union all
			select 'rejection ' || to_json(t) from fence.rejections t union all
			select 'identity ' || to_json(t) from fence.database_identity t union all
			select 'tokens ' || last_value from fence.tokens
		) as kept (line)`).Scan(&lines)
	return strings.Join(lines, "\n"), err
}

// LeasesEndInTime returns an error if a lease is recorded as granted or ended after the time until which it ran.
func (b *DB) LeasesEndInTime(ctx context.Context) error {
	check := checks.OfRows[slices.IndexFunc(checks.OfRows, func(c checks.Check) bool { return c.Name == "lease_end" })]
	var late []string
	err := b.SQL.QueryRow(ctx, "select array_agg(format('%s: %s', lock, detail)) from ("+check.SQL+
		") as late (lock, detail)").Scan(&late)
	if err == nil && len(late) > 0 {
		err = errors.New(strings.Join(late, "\n"))
	}
	return err
}

// Unchanged runs what should change nothing and returns what it changed nevertheless.
func (b *DB) Unchanged(ctx context.Context, what func() error) error {
	before, err := b.Dump(ctx)
	if err != nil {
		return err
	}
	if err := what(); err != nil {
		return err
	}
	after, err := b.Dump(ctx)
	if err != nil {
		return err
	}
	return Trace(before, after)
}

// Trace is an error that names the rows in which two dumps differ, if they do.
func Trace(before, after string) error {
	if before == after {
		return nil
	}
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	return fmt.Errorf("it left a trace:\nbefore %q\nafter  %q", without(was, is), without(is, was))
}

func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// AwaitBlocked returns when a statement waits for a lock in the database, or the error of work if that ended without
// waiting.
func (b *DB) AwaitBlocked(ctx context.Context, work <-chan error) error {
	for {
		var blocked bool
		err := b.SQL.QueryRow(ctx, `
			select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&blocked)
		if err != nil || blocked {
			return err
		}
		select {
		case err := <-work:
			return errors.Join(errors.New("it did not wait for the lock"), err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// LockedBy begins a session beside the Store that keeps what sql locks, until the test ends or unlock is called, and
// returns its pid.
func (b *DB) LockedBy(t *testing.T, sql string, args ...any) (pid int, unlock func()) {
	t.Helper()
	tx, err := b.SQL.Begin(t.Context())
	check(t, err)
	unlock = func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
	t.Cleanup(unlock)
	check(t, tx.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid))
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return pid, unlock
}

// NewSweeper returns a Sweeper that does not run.
func NewSweeper(t *testing.T, on *postgres.Store, config postgres.SweeperConfig) *postgres.Sweeper {
	t.Helper()
	sweeper, err := postgres.NewSweeper(on, config)
	check(t, err)
	return sweeper
}

// Put returns a numbered write under a lease.
func Put(lease store.Lease, sequence int64, value string) store.Write {
	return store.Write{
		WriteToken: store.WriteToken{Resource: lease.Lock, Token: lease.Token, Sequence: &sequence},
		Operation:  store.Operation{Kind: store.Put, Key: "key", Value: []byte(value), ContentType: "text/plain"},
	}
}

// Numbered returns one of many names.
func Numbered(prefix string, number int) store.Name {
	return store.Name(fmt.Sprintf("%s/%d", prefix, number))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NewCrashing is a testbed on a cluster that may be killed.
func NewCrashing(t *testing.T, options ...pgtest.Option) (*DB, *pgtest.Cluster) {
	t.Helper()
	cluster := pgtest.NewCluster(t, options...)
	sql, err := pgxpool.New(t.Context(), cluster.URL())
	check(t, err)
	t.Cleanup(sql.Close)
	b := &DB{OpenStore(t, postgres.Config{DatabaseURL: cluster.URL()}), cluster.URL(), sql}
	check(t, b.Migrate(await.Context(t)))
	return b, cluster
}

// Insist sends again what the database was not there for.
func Insist(what func() error) (err error) {
	for deadline := time.Now().Add(await.Limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = what(); !errors.Is(err, store.ErrUnavailable) {
			return err
		}
	}
	return err
}

// Unavailable checks that an error is ErrUnavailable, with the outcome that is known of the call.
func Unavailable(err error, outcome store.Outcome) error {
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, store.ErrUnavailable) || unavailable.Outcome != outcome {
		return fmt.Errorf("the answer is %w, want ErrUnavailable with outcome %s", err, outcome)
	}
	return nil
}

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
