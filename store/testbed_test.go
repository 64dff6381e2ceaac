package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/pgtest"
	"github.com/fencegate/fencegate/store"
)

// testbed is a migrated database of a test's own, a Store on it, and a way past the Store: to look under the lid, and to
// break things.
type testbed struct {
	*store.Store
	url string
	sql *pgxpool.Pool
}

func newTestbed(t testing.TB) *testbed {
	t.Helper()
	url := pgtest.Migrated(t)
	sql, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sql.Close)
	b := &testbed{openStore(t, store.Config{DatabaseURL: url}), url, sql}
	b.exec(t, "select setval('fence.tokens', 1000)") // so that there are tokens below the first that is granted
	return b
}

func openStore(t testing.TB, config store.Config) *store.Store {
	t.Helper()
	opened, err := store.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened
}

// exec runs SQL beside the Store and expects it to work.
func (b *testbed) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.sql.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// dump is everything that fencegate keeps, a line per row: what was not changed reads the same. A fence under which nothing was granted
// or written is nothing but a row that can be locked.
func (b *testbed) dump(ctx context.Context) (string, error) {
	var lines []string
	err := b.sql.QueryRow(ctx, `
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

// unchanged runs what should change nothing and tells what it changed all the same.
func (b *testbed) unchanged(ctx context.Context, what func() error) error {
	before, err := b.dump(ctx)
	if err != nil {
		return err
	}
	if err := what(); err != nil {
		return err
	}
	after, err := b.dump(ctx)
	if err != nil {
		return err
	}
	return trace(before, after)
}

// trace is an error that names the rows in which two dumps differ, if they do.
func trace(before, after string) error {
	if before == after {
		return nil
	}
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	return fmt.Errorf("it left a trace:\nbefore %q\nafter  %q", without(was, is), without(is, was))
}

func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// awaitBlocked returns when a statement waits for a lock in the database, or the error of work if that ended without waiting.
func (b *testbed) awaitBlocked(ctx context.Context, work <-chan error) error {
	for {
		var blocked bool
		err := b.sql.QueryRow(ctx, `
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

func ptr[T any](value T) *T { return &value }
