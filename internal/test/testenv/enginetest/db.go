// Package enginetest has databases and engines for the tests of the store, of its machines and of the engine.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	url := pgtest.Migrated(t)
	sql, err := pgxpool.New(t.Context(), url)
	check(t, err)
	t.Cleanup(sql.Close)
	b := &DB{OpenStore(t, postgres.Config{DatabaseURL: url}), url, sql}
	b.Exec(t, "select setval('fence.tokens', 1000)") // so that there are tokens below the first that is granted
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
			select 'fence ' || to_json(t) from fence.fences t where greatest(t.granted_token, t.last_token) > 0 union all
			select 'subtree ' || to_json(t) from fence.subtrees t where t.granted_token > 0 union all
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
