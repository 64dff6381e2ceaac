package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/fencegate/fencegate/migrations"
	"github.com/fencegate/fencegate/store"
	"github.com/fencegate/fencegate/store/internal/timing"
)

const (
	// triesMax is how often a statement is sent if the server rolls it back because of concurrent transactions.
	triesMax = 6
	// retryPause is the mean of the first pause before it is sent again; each is twice the one before, give or take a
	// half.
	retryPause = 2 * time.Millisecond
)

// query runs one statement, which is one transaction, and calls scan for every row. When it returns nil, the
// transaction is committed: the driver has read to the end, where the server reports a commit that failed.
func (s *Store) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
	return s.queryAs(ctx, statement{}, sql, args, scan)
}

// exec is queryAs that ignores the rows.
func (s *Store) exec(ctx context.Context, stmt statement, sql string, args ...any) error {
	stmt.restart = func() {}
	return s.queryAs(ctx, stmt, sql, args, func(pgx.Rows) error { return nil })
}

// queryRow is queryAs that reads the first row into dest. It returns pgx.ErrNoRows if there is none.
func (s *Store) queryRow(ctx context.Context, stmt statement, sql string, args []any, dest ...any) error {
	found := false
	stmt.restart = func() { found = false }
	err := s.queryAs(ctx, stmt, sql, args, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(dest...)
	})
	if err == nil && !found {
		return pgx.ErrNoRows
	}
	return err
}

// queryAs is query with a connection of the statement's share. A statement that was undone is sent again, unless scan
// has seen rows of it and the statement has no restart: the commit may fail after the rows, for it waits for PostgreSQL's
// one lock for notifications.
func (s *Store) queryAs(ctx context.Context, stmt statement, sql string, args []any, scan func(pgx.Rows) error) error {
	return s.send(ctx, stmt, func(conn *pgxpool.Conn, lockWait time.Duration) (again bool, err error) {
		again = true
		if stmt.restart != nil {
			stmt.restart()
		}
		read := func(rows pgx.Rows) error {
			again = stmt.restart != nil
			return scan(rows)
		}
		if lockWait == 0 {
			rows, err := conn.Query(ctx, sql, args...)
			err = scanAll(rows, err, read)
			return again, err
		}
		batch := &pgx.Batch{}
		batch.Queue(sql, withoutMode(args)...)
		err = sendBatch(ctx, conn, lockWait, batch, func(results pgx.BatchResults) error {
			return inBatch(results)(ctx, "", nil, read)
		})
		return again, err
	})
}

// sendBatch runs statements in one transaction, and calls read for the results. It sends them at once, so a frozen
// gateway keeps nothing locked. Each waits for a lock for this time; 0: the session's.
func sendBatch(
	ctx context.Context, conn *pgxpool.Conn, lockWait time.Duration, batch *pgx.Batch, read func(pgx.BatchResults) error,
) (err error) {
	whole := &pgx.Batch{}
	if lockWait > 0 {
		whole.Queue(lockWaitSQL, lockWaitArg(lockWait))
	}
	whole.QueuedQueries = append(whole.QueuedQueries, batch.QueuedQueries...)
	results := conn.SendBatch(ctx, whole)
	if lockWait > 0 {
		_, err = results.Exec()
	}
	if err == nil {
		err = read(results)
	}
	return cmp.Or(err, results.Close())
}

const lockWaitSQL = "select set_config('lock_timeout', $1, true)"

func lockWaitArg(wait time.Duration) string { return strconv.FormatInt(wait.Milliseconds(), 10) }

// withoutMode returns the arguments of a query for a batch, whose statements are all sent in the connection's mode.
func withoutMode(args []any) []any {
	if len(args) > 0 {
		if _, mode := args[0].(pgx.QueryExecMode); mode {
			return args[1:]
		}
	}
	return args
}

// setLockWait bounds how long each further statement of a transaction waits for a lock. 0 leaves that as it is.
func setLockWait(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	if wait == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, lockWaitSQL, lockWaitArg(wait))
	return err
}

// inTx runs work in one transaction, perhaps several times: it repeats a transaction that was rolled back.
func (s *Store) inTx(ctx context.Context, options pgx.TxOptions, work func(pgx.Tx) error) error {
	return s.send(ctx, statement{}, func(conn *pgxpool.Conn, lockWait time.Duration) (bool, error) {
		return true, pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
			if err := setLockWait(ctx, tx, lockWait); err != nil {
				return err
			}
			return work(tx)
		})
	})
}

// queryFunc is Store.query, or the same in a transaction or a batch.
type queryFunc func(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error

// queryIn is Store.query in a transaction.
func queryIn(tx pgx.Tx) queryFunc {
	return func(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) error {
		rows, err := tx.Query(ctx, sql, args...)
		return scanAll(rows, err, scan)
	}
}

// inBatch reads the next result of a batch, whose statement was sent before.
func inBatch(results pgx.BatchResults) queryFunc {
	return func(_ context.Context, _ string, _ []any, scan func(pgx.Rows) error) error {
		rows, err := results.Query()
		return scanAll(rows, err, scan)
	}
}

func scanAll(rows pgx.Rows, err error, scan func(pgx.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return scanError{err}
		}
	}
	return rows.Err()
}

// collect returns the rows of one statement, each as read returns it. The list is not nil.
func collect[T any](
	ctx context.Context, query queryFunc, sql string, args []any, read pgx.RowToFunc[T],
) ([]T, error) {
	list := []T{}
	err := query(ctx, sql, args, func(rows pgx.Rows) error {
		row, err := read(rows)
		list = append(list, row)
		return err
	})
	return list, err
}

// scanError is an error that is not the driver's, and not to be classified.
type scanError struct{ error }

func (e scanError) Unwrap() error { return e.error }

// work sends a statement on a connection, with the lockWait of a permit. again: it may be sent again.
type work func(conn *pgxpool.Conn, lockWait time.Duration) (again bool, err error)

// send is the one level at which statements are sent again: after a deadlock or a failed serialization (40P01, 40001),
// or a change of the schema beneath a prepared statement, at most triesMax times; once after a lock timeout, with a
// connection for such waits (see bulkheads), or as the statement's lockWait says. All of these were rolled back, so
// nothing is applied twice. The callers of the Store add no tries for 40P01 and 40001. The docs of their packages say what
// they do after other errors.
func (s *Store) send(ctx context.Context, stmt statement, work work) error {
	var again bool
	var err error
	known := !stmt.bounded && s.bulkheads.isHeld(stmt)
	if !known {
		again, err = s.sendAs(ctx, stmt, work)
	}
	if known || again && !stmt.bounded && isState(err, "55P03") && ctx.Err() == nil {
		waiting := stmt
		waiting.waiting = true
		_, err = s.sendAs(ctx, waiting, work)
		s.bulkheads.noteHeld(stmt, isState(err, "55P03"))
	}
	if isState(err, "55P03") && len(stmt.locks) > 0 {
		return s.explainLocked(ctx, err, stmt.locks)
	}
	return err
}

// sendAs is send with a connection of the statement's share.
func (s *Store) sendAs(ctx context.Context, stmt statement, work work) (again bool, err error) {
	permit, err := s.bulkheads.enter(ctx, stmt)
	if err != nil {
		return false, s.failed(err)
	}
	defer permit.leave()
	pause := retryPause
	for try := 1; ; try++ {
		again, err = s.sendOnce(ctx, func(conn *pgxpool.Conn) (bool, error) { return work(conn, permit.lockWait) })
		switch {
		case err == nil || !again || ctx.Err() != nil:
			return again, err
		case undone(err) && try < triesMax:
			s.CountRetry(err)
			timing.Sleep(ctx, pause/2+rand.N(pause)) //nolint:gosec // jitter, not a secret
			pause *= 2
		case isState(err, "55P03") && stmt.lockWait != nil && *stmt.lockWait > 0:
			*stmt.lockWait = 0 // nothing was applied, because of one fence: the others do not wait for it again
		case isStale(err) && try < triesMax: // the next connection may be stale, too
		default:
			return again, err
		}
	}
}

func (s *Store) sendOnce(
	ctx context.Context, work func(*pgxpool.Conn) (again bool, err error),
) (again bool, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, s.failed(notConnected(err))
	}
	defer conn.Release()
	_ = takeNotReplicated(conn.Conn().PgConn()) // a warning from before is not about this statement
	again, err = work(conn)
	if unconfirmed := takeNotReplicated(conn.Conn().PgConn()); unconfirmed != nil {
		return false, s.failed(unconfirmed)
	}
	var scan scanError
	if err == nil || errors.As(err, &scan) {
		if late := s.endedLate(ctx, conn.Conn()); late != nil {
			return false, s.failed(late)
		}
		return false, scan.error
	}
	if err != nil {
		s.dropIdle(ctx, conn.Conn(), err)
	}
	return again, s.failed(s.notice(ctx, classify(err)))
}

// notConnected is for failures before anything was sent.
func notConnected(err error) error {
	if classified := classify(err); errors.Is(classified, migrations.ErrNotMigrated) {
		return classified
	}
	return store.NotApplied(err)
}

// undone reports whether the server has rolled a statement back because of concurrent transactions.
func undone(err error) bool { return isState(err, "40001") || isState(err, "40P01") }

// isStale reports whether a prepared statement does not fit the schema any more (0A000, "cached plan must not change
// result type"), or is gone (26000). Nothing was executed.
func isStale(err error) bool { return isState(err, "0A000") || isState(err, "26000") }

// statementTracer makes a span of each statement that belongs to another span. Arguments, among which are secrets, are
// not in it.
func statementTracer(config store.Tracing, conn *pgx.ConnConfig) pgx.QueryTracer {
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(config.Provider),
		otelpgx.WithSpanNameFunc(statementName),
		otelpgx.WithQuerySpanNamePrefix(),                  // or to prepare it would be called the same
		otelpgx.WithDisableConnectionDetailsInAttributes(), // it would copy the connection's configuration for each statement
		otelpgx.WithTracerAttributes(
			attribute.String("server.address", conn.Host), attribute.Int("server.port", int(conn.Port)),
			attribute.String("db.namespace", conn.Database)),
	)
}

// fenceName is a name that is not an argument in quotes.
var fenceName = regexp.MustCompile(`(fence\.[a-z_]+)(?:[^a-z_']|$)`)

// statementName is the function or table of the schema fence that a statement names first, or else its first word.
func statementName(sql string) string {
	if name := fenceName.FindStringSubmatch(sql); name != nil {
		return name[1]
	}
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.ToLower(word)
}

// traced runs work within a span of its own, which begins a trace where ctx has none.
func (s *Store) traced(
	ctx context.Context, name string, work func(context.Context) error, attributes func() []attribute.KeyValue,
) error {
	if s.tracer == nil {
		return work(ctx)
	}
	ctx, span := s.tracer.Start(ctx, name)
	defer span.End()
	err := work(ctx)
	if span.IsRecording() {
		span.SetAttributes(attributes()...)
		if err != nil {
			store.SpanFailed(span, err)
		}
	}
	return err
}

// withinSQL is the condition that a name is one of the names in an argument, or below one of them. "" is above every
// name, and so is null.
func withinSQL(column, argument string) string {
	return fmt.Sprintf(`(%[2]s::text[] is null or exists (select from unnest(%[2]s::text[]) v (name)
		where v.name = '' or %[1]s = v.name or starts_with(%[1]s, v.name || '/')))`, column, argument)
}

// narrowed returns a common prefix of the names that have this prefix and are within the names: a list reads no others.
func narrowed(prefix string, within []string) string {
	if len(within) == 1 && strings.HasPrefix(within[0], prefix) {
		return within[0]
	}
	return prefix
}
