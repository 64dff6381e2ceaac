package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/gateway/api"
	"github.com/fencegate/fencegate/internal/testenv/await"
	"github.com/fencegate/fencegate/store"
)

func (h *harness) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := h.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// count returns the number that a query selects.
func (h *harness) count(t testing.TB, sql string, args ...any) (number int64) {
	t.Helper()
	if err := h.db.QueryRow(t.Context(), sql, args...).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// texts returns the texts that a query selects.
func (h *harness) texts(t testing.TB, sql string) []string {
	t.Helper()
	rows, err := h.db.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// dump returns every row of every table, and the last token.
func (h *harness) dump(t testing.TB) string {
	t.Helper()
	tables := h.texts(t, "select relname from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r'")
	if len(tables) < 5 {
		t.Fatalf("the schema has the tables %q, want at least 5", tables)
	}
	selects := []string{"select 'tokens: ' || last_value || is_called from fence.tokens"}
	for _, table := range tables {
		selects = append(selects, fmt.Sprintf("select '%[1]s: ' || r::text from fence.%[1]s r", table))
	}
	return strings.Join(h.texts(t, strings.Join(selects, " union all ")+" order by 1"), "\n")
}

// unchanged fails the test if a function changes the database.
func (h *harness) unchanged(t testing.TB, do func()) {
	t.Helper()
	before := h.dump(t)
	do()
	if after := h.dump(t); after != before {
		t.Errorf("the database was changed.\nbefore:\n%s\nafter:\n%s", before, after)
	}
}

// expire makes a lease end an hour ago, by the database's clock.
func (h *harness) expire(t testing.TB, lease api.Lease) {
	t.Helper()
	h.exec(t, `update fence.leases set granted_at = granted_at - interval '2 hours',
			expires_at = clock_timestamp() - interval '1 hour', check_at = '-infinity'
		where lock = $1 and fencing_token = $2`, lease.Lock, lease.FencingToken)
}

// zombie is a lease that ended an hour ago; current is the one that has replaced it.
func (h *harness) zombie(t testing.TB, lock string) (zombie, current api.Lease) {
	t.Helper()
	zombie = h.acquire(t, lock, "zombie")
	h.expire(t, zombie)
	return zombie, h.acquire(t, lock, "current")
}

// holdFence locks the row of a fence. Writes to the resource wait until unlock.
func (h *harness) holdFence(t testing.TB, resource string) (unlock func()) {
	t.Helper()
	return h.hold(t, "select from fence.fences where resource = $1 for update", resource)
}

// hold keeps the locks of a statement until unlock, or until the test ends.
func (h *harness) hold(t testing.TB, sql string, args ...any) (unlock func()) {
	t.Helper()
	tx, err := h.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// awaitWaiting returns when n database sessions of the gateway wait for a row.
func (h *harness) awaitWaiting(t testing.TB, n int64) {
	t.Helper()
	h.awaitWaitingFor(t, n, 0)
}

// awaitTurns waits until as many statements have a turn to wait for a lock: before that, each waits only briefly.
func (h *harness) awaitTurns(t testing.TB, n int64) {
	t.Helper()
	h.awaitWaitingFor(t, n, 500*time.Millisecond)
}

func (h *harness) awaitWaitingFor(t testing.TB, n int64, least time.Duration) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d database sessions wait for a row, for %s", n, least), func() bool {
		return h.count(t, `select count(*) from pg_stat_activity where datname = current_database()
			and application_name = 'fencegate' and wait_event_type = 'Lock'
			and clock_timestamp() - query_start >= $1`, least) == n
	})
}

// expectSessionsKept returns a check that the gateway still has all database sessions that it has now.
func (h *harness) expectSessionsKept(t testing.TB) (check func()) {
	t.Helper()
	const sessions = `select pid || ' since ' || backend_start from pg_stat_activity
		where datname = current_database() and application_name = 'fencegate' order by 1`
	before := h.texts(t, sessions)
	return func() {
		t.Helper()
		if after := h.texts(t, sessions); !containsAll(after, before) {
			t.Errorf("of the database sessions %q only %q are left: a statement was cut off", before, after)
		}
	}
}

// endSessions ends the database sessions of all gateways, as an administrator would, and waits until this one noticed.
func (h *harness) endSessions(t testing.TB) {
	t.Helper()
	h.exec(t, `select pg_terminate_backend(pid, 60000) from pg_stat_activity
		where datname = current_database() and application_name like 'fencegate%'`)
	h.awaitNoDeadConnection(t)
}

// awaitNoDeadConnection returns when the gateway has noticed every database connection that broke. Until then a
// statement may be sent over one, and its outcome is unknown.
func (h *harness) awaitNoDeadConnection(t testing.TB) {
	t.Helper()
	await.True(t, "no dead connection is left", func() bool {
		var dead *store.UnavailableError
		_, err := h.store.Policies(t.Context())
		return !errors.As(err, &dead) || dead.Outcome == store.OutcomeNotApplied
	})
}

// record writes the rejections noted so far. With its context ended, Run writes once.
func (h *harness) record(t testing.TB) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	h.recorder.Run(ended, func(err error) { t.Fatal(err) })
}

// sweep runs one sweep.
func (h *harness) sweep(t testing.TB) {
	t.Helper()
	sweeper, err := store.NewSweeper(h.store.Store, store.SweeperConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}
