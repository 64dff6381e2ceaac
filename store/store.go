package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/migrations"
)

// Config says where the database is and how it is used.
type Config struct {
	// DatabaseURL is a PostgreSQL URL or key=value string, as libpq understands it. Required.
	DatabaseURL string
	// ConnectionsMax bounds the connections to the database. Default 16, at least 2.
	ConnectionsMax int
	// StatementTimeout bounds one statement in the database, waits for locks included. Default 10 s; at least 100 ms.
	StatementTimeout time.Duration
	// Tracing says whether spans are made. Default: none.
	Tracing Tracing
}

const (
	defaultConnectionsMax   = 16
	defaultStatementTimeout = 10 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	if c.ConnectionsMax == 0 {
		c.ConnectionsMax = defaultConnectionsMax
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = defaultStatementTimeout
	}
	switch {
	case c.DatabaseURL == "":
		return c, fmt.Errorf("%w: the database URL is empty (--database-url)", ErrInvalid)
	case c.ConnectionsMax < 2 || c.ConnectionsMax > 10_000:
		return c, fmt.Errorf("%w: --database-connections-max is %d, it must be 2 to 10000", ErrInvalid, c.ConnectionsMax)
	case c.StatementTimeout < 100*time.Millisecond || c.StatementTimeout > time.Hour:
		return c, fmt.Errorf("%w: --statement-timeout is %s, it must be 100ms to 1h", ErrInvalid, c.StatementTimeout)
	}
	return c, nil
}

// Store keeps leases, fences and records in one PostgreSQL database. It is safe for concurrent use, and so are any number of
// Stores on one database.
type Store struct {
	pool    *pgxpool.Pool
	config  Config
	counts  counts
	tracing *tracing // nil: nothing is traced
}

// Open prepares a pool of connections; it does not wait for the database, which may come and go. It returns ErrInvalid if the
// configuration is outside its limits.
func Open(ctx context.Context, config Config) (*Store, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	poolConfig, err := pgxpool.ParseConfig(config.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("%w: --database-url: %w", ErrInvalid, err)
	}
	poolConfig.MaxConns = int32(config.ConnectionsMax)
	poolConfig.AfterConnect = keepCommitsDurable
	params := poolConfig.ConnConfig.RuntimeParams
	params["application_name"] = "fencegate"
	params["default_transaction_isolation"] = "read committed" // the functions lock first and read in a later statement
	params["statement_timeout"] = fmt.Sprint(config.StatementTimeout.Milliseconds())
	params["jit"] = "off"
	if config.Tracing.Provider != nil {
		poolConfig.ConnConfig.Tracer = statementTracer(config.Tracing, poolConfig.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("open the pool: %w", err)
	}
	return &Store{pool: pool, config: config, tracing: newTracing(config.Tracing)}, nil
}

// keepCommitsDurable undoes a server-wide synchronous_commit=off: an acknowledged write must survive a crash (P9).
// Stricter settings, which wait for standbys, stay.
func keepCommitsDurable(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx,
		"select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'")
	return err
}

// Close ends all connections, after the statements under way.
func (s *Store) Close() { s.pool.Close() }

// PoolStats tells how the connections to the database are used.
type PoolStats struct {
	Max, Busy, Idle int64
	// Waited counts the statements that had to wait for a connection.
	Waited int64
}

// PoolStats returns the state of the pool now.
func (s *Store) PoolStats() PoolStats {
	stat := s.pool.Stat()
	return PoolStats{
		Max: int64(stat.MaxConns()), Busy: int64(stat.AcquiredConns()), Idle: int64(stat.IdleConns()), Waited: stat.EmptyAcquireCount(),
	}
}

// Migrate brings the schema up to this program's; see migrations.Apply for the errors. It returns ErrUnavailable where there is no
// connection.
func (s *Store) Migrate(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &UnavailableError{OutcomeNotApplied, err}
	}
	defer conn.Release()
	// A migration takes as long as it takes, and may wait for another gateway's.
	if _, err := conn.Exec(ctx, "set statement_timeout = 0"); err != nil {
		return classify(err)
	}
	err = migrations.Apply(ctx, conn.Conn())
	_ = conn.Conn().Close(ctx) // its settings and prepared plans are of the old schema; the pool makes a new one
	return err
}

// Await waits until the database answers, at most timeout: it may only just be starting. It returns ErrUnavailable with the reason.
func (s *Store) Await(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := s.pool.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return &UnavailableError{OutcomeNotApplied, err}
		}
	}
}

// Ready returns nil if the store can serve: the database answers, takes writes, and has this program's schema. Otherwise it
// returns ErrUnavailable, whose text says what is wrong; migrations.ErrNewer is in it where that is the reason.
func (s *Store) Ready(ctx context.Context) error {
	var readOnly bool
	err := s.queryRow(ctx, "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean", nil, &readOnly)
	if err != nil {
		return err
	}
	if readOnly {
		return &UnavailableError{OutcomeNotApplied, errors.New("it is read-only: a standby, or default_transaction_read_only is set")}
	}
	if err := migrations.Check(ctx, s.pool); err != nil {
		return &UnavailableError{OutcomeNotApplied, err}
	}
	return nil
}

// query runs one statement, which is one transaction, and calls scan for every row. When it returns nil, the transaction is
// committed: the driver has read to the end, where the server reports a commit that failed.
func (s *Store) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.failed(notConnected(err))
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return s.failed(classify(err))
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return s.failed(classify(rows.Err()))
}

// queryRow runs one statement and reads its first row into dest. It returns pgx.ErrNoRows if there is none.
func (s *Store) queryRow(ctx context.Context, sql string, args []any, dest ...any) error {
	found := false
	err := s.query(ctx, sql, args, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		return pgx.ErrNoRows
	}
	return err
}

// notConnected is for failures before anything was sent.
func notConnected(err error) error {
	if classified := classify(err); errors.Is(classified, ErrNotMigrated) {
		return classified
	}
	return &UnavailableError{OutcomeNotApplied, err}
}

// exec runs one statement whose rows nobody needs.
func (s *Store) exec(ctx context.Context, sql string, args ...any) error {
	return s.query(ctx, sql, args, func(pgx.Rows) error { return nil })
}
