package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

// Config says where the database is and how it is used.
type Config struct {
	// DatabaseURL is a PostgreSQL URL or key=value string, as libpq understands it. Required.
	DatabaseURL string
	// ListenURL leads to the same database directly, where DatabaseURL leads through a pooler in transaction mode, such as
	// PgBouncer: for notifications, migrations and probes. Default: DatabaseURL, which must lead to a session then.
	ListenURL string
	// ConnectionsMax bounds the connections to the database. Default 16, at least 2.
	ConnectionsMax int
	// StatementTimeout bounds one statement in the database, waits for locks included. Default 10 s; at least 100 ms.
	StatementTimeout time.Duration
	// LockTimeout bounds the wait of a statement for a lock in the database, which another session may hold for any
	// time. Queued writes wait for a fence up to StatementTimeout. Default 1 s; 10 ms to 1 h.
	LockTimeout time.Duration
	// Tracing says whether spans are made. Default: none.
	Tracing store.Tracing
	// Logger receives changes of the database, refusals of older ones, and what keeps a lock from its waiters. Default:
	// nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	c.ConnectionsMax = cmp.Or(c.ConnectionsMax, 16)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, 10*time.Second)
	c.LockTimeout = cmp.Or(c.LockTimeout, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case c.DatabaseURL == "":
		return c, fmt.Errorf("%w: the database URL is empty (--database-url)", store.ErrInvalid)
	case c.ConnectionsMax < 2 || c.ConnectionsMax > 10_000:
		return c, fmt.Errorf("%w: --database-connections-max is %d, it must be 2 to 10000", store.ErrInvalid, c.ConnectionsMax)
	case c.StatementTimeout < 100*time.Millisecond || c.StatementTimeout > time.Hour:
		return c, fmt.Errorf("%w: --statement-timeout is %s, it must be 100ms to 1h", store.ErrInvalid, c.StatementTimeout)
	case c.LockTimeout < 10*time.Millisecond || c.LockTimeout > time.Hour:
		return c, fmt.Errorf("%w: --lock-timeout is %s, it must be 10ms to 1h", store.ErrInvalid, c.LockTimeout)
	}
	return c, nil
}

// Store keeps leases, fences and records in one PostgreSQL database. It is safe for concurrent use, and so are any
// number of Stores on one database.
type Store struct {
	pool        *pgxpool.Pool
	connections *connections    // of the pool
	outside     *pgxpool.Config // of the connections outside the pool; no pool is made of it
	direct      *connections    // those
	bulkheads   *bulkheads      // of the pool
	leases      *leaseBatches
	config      Config
	counts      counts
	lineage     lineage
	replicated  xmins
	tracer      trace.Tracer // nil: nothing is traced
}

// Open prepares a pool of connections; it does not wait for the database, which may come and go. It returns ErrInvalid
// if the configuration is outside its limits.
func Open(ctx context.Context, config Config) (*Store, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		bulkheads: newBulkheads(config),
		config:    config, tracer: config.Tracing.Tracer(), lineage: lineage{newest: map[int64]state{}},
		counts: counts{newReasonCounts(store.FailureReasons), newReasonCounts(store.RetryReasons)},
	}
	s.leases = newLeaseBatches(s)
	pooled, connections, err := s.prepareConnections(config.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("%w: --database-url: %w", store.ErrInvalid, err)
	}
	s.connections, s.outside, s.direct = connections, pooled, connections
	if config.ListenURL != "" {
		throughPooler(pooled)
		if s.outside, s.direct, err = s.prepareConnections(config.ListenURL); err != nil {
			return nil, fmt.Errorf("%w: --listen-url: %w", store.ErrInvalid, err)
		}
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pooled); err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	return s, nil
}

// prepareConnections returns how connections to a database URL are made.
func (s *Store) prepareConnections(databaseURL string) (*pgxpool.Config, *connections, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(s.config.ConnectionsMax)
	config.ConnConfig.RuntimeParams["application_name"] = "fencegate"
	maps.Copy(config.ConnConfig.RuntimeParams, s.config.settings())
	noteNotReplicated(config.ConnConfig)
	if s.config.Tracing.Provider != nil {
		config.ConnConfig.Tracer = statementTracer(s.config.Tracing, config.ConnConfig)
	}
	connections := manageConnections(config)
	s.judgeConnections(config)
	return config, connections, nil
}

// settings are those of each session.
func (c Config) settings() map[string]string {
	return map[string]string{
		"default_transaction_isolation": "read committed", // the functions lock first and read in a later statement
		"statement_timeout":             fmt.Sprint(c.StatementTimeout.Milliseconds()),
		// At first; see bulkheads.
		"lock_timeout":                fmt.Sprint(min(c.LockTimeout, briefWait).Milliseconds()),
		"standard_conforming_strings": "on", // the functions are parsed by it
		"jit":                         "off",
		"client_min_messages":         "warning", // noteNotReplicated needs to see them
	}
}

// ConnectionsMax returns the bound on the connections to the database.
func (s *Store) ConnectionsMax() int { return s.config.ConnectionsMax }

// StatementTimeout returns the bound on one statement in the database.
func (s *Store) StatementTimeout() time.Duration { return s.config.StatementTimeout }

// Tracing returns where spans go.
func (s *Store) Tracing() store.Tracing { return s.config.Tracing }

// Close ends all connections, after the statements under way.
func (s *Store) Close() { s.pool.Close() }

// PoolStats returns the state of the pool now.
func (s *Store) PoolStats() store.PoolStats {
	stat := s.pool.Stat()
	return store.PoolStats{
		Max: int64(stat.MaxConns()), Busy: int64(stat.AcquiredConns()), Idle: int64(stat.IdleConns()),
		Waited: stat.EmptyAcquireCount() + s.bulkheads.waited.Load(),
	}
}

// Migrate brings the schema up to this program's; see migrations.Apply for the errors. It returns ErrUnavailable where
// there is no connection.
func (s *Store) Migrate(ctx context.Context) error {
	_, err := s.MigrateBy(ctx, migrations.Script{})
	return err
}

// MigrateBy is Migrate for a schema that replaces another one, and says what it did; see
// migrations.Script.
func (s *Store) MigrateBy(ctx context.Context, script migrations.Script) (did string, err error) {
	err = s.alter(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		did, err = script.Apply(ctx, conn)
		return err
	})
	return did, err
}

// CompareSchema is migrations.Compare.
func (s *Store) CompareSchema(ctx context.Context) error {
	return s.onConnection(ctx, func(conn *pgx.Conn) error { return migrations.Compare(ctx, conn) })
}

// Grant gives roles of applications their rights; see migrations.Grant for the errors. It returns ErrUnavailable where
// there is no connection.
func (s *Store) Grant(ctx context.Context, roles migrations.Roles) error {
	return s.alter(ctx, func(ctx context.Context, conn *pgx.Conn) error { return migrations.Grant(ctx, conn, roles) })
}

// alter calls change, which changes the schema, with a connection of its own.
func (s *Store) alter(ctx context.Context, change func(context.Context, *pgx.Conn) error) error {
	return s.onConnection(ctx, func(conn *pgx.Conn) error {
		// A migration may take any time, and wait for another gateway's.
		if _, err := conn.Exec(ctx, "set statement_timeout = 0; set lock_timeout = 0"); err != nil {
			return classify(err)
		}
		return change(ctx, conn)
	})
}

// onConnection calls work with a connection outside the pool. It returns ErrUnavailable where there is none.
func (s *Store) onConnection(ctx context.Context, work func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, s.ConnConfig())
	if err != nil {
		return store.NotApplied(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return work(conn)
}

// refusalTimeout is how long Await waits for a database that refuses the role, or does not exist: another program may
// only just be making it.
const refusalTimeout = 15 * time.Second

// Await waits until the database answers, at most timeout; 0: as long as it takes. A server that answers that it takes
// no connection now (it starts up, or has none free) is waited for four times as long, another refusal 15 s at most.
// Await passes each failed attempt to waiting. It returns ErrUnavailable with the reason, and ErrInvalid for a pooler
// without ListenURL.
func (s *Store) Await(ctx context.Context, timeout time.Duration, waiting func(error)) error {
	const busyFactor = 4
	begun := time.Now()
	for {
		err := s.reach(ctx)
		if err == nil {
			return nil
		}
		if isState(err, "08P01") { // PgBouncer's, of settings that it does not know
			return fmt.Errorf("%w: --database-url leads through a pooler: set --listen-url, too (%w)", store.ErrInvalid, err)
		}
		limit := timeout
		refusal, refused := errors.AsType[*pgconn.PgError](err)
		switch {
		case refused && (refusal.Code == "57P03" || refusal.Code == "53300"):
			limit = busyFactor * timeout
		case refused:
			limit = min(cmp.Or(timeout, refusalTimeout), refusalTimeout)
		}
		if ctx.Err() != nil || limit > 0 && time.Since(begun) > limit {
			return store.NotApplied(err)
		}
		waiting(err)
		timing.Sleep(ctx, 200*time.Millisecond)
	}
}

// reach returns nil if the database answers. The role has its settings before the first session of a pooler begins.
func (s *Store) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	if s.config.ListenURL != "" {
		if err := s.configureRole(ctx); err != nil {
			return err
		}
	}
	return s.pool.Ping(ctx)
}
