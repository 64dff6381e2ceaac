//go:build unix

package faults

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencegate/fencegate/internal/await"
)

// connect gives the test its own way into a database.
func connect(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// ask returns the one value that a query yields.
func ask[T any](t *testing.T, db *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	check(t, db.QueryRow(patient(t), sql, args...).Scan(&value))
	return value
}

func execute(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(patient(t), sql, args...)
	check(t, err)
}

// readState reads what fencegate keeps, as of one moment.
func readState(t *testing.T, db *pgxpool.Pool) state {
	t.Helper()
	s := state{fences: map[string]storedFence{}}
	ctx := patient(t)
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		return readTables(ctx, tx, &s)
	})
	check(t, err)
	return s
}

func readTables(ctx context.Context, tx pgx.Tx, s *state) error {
	err := each(ctx, tx, `select lock, owner_id, lease_id::text, fencing_token, granted_at, coalesce(ended_at, expires_at) from fence.leases`,
		func(rows pgx.Rows) error {
			var l storedLease
			defer func() { s.leases = append(s.leases, l) }()
			return rows.Scan(&l.lock, &l.owner, &l.leaseID, &l.token, &l.grantedAt, &l.endsAt)
		})
	if err != nil {
		return err
	}
	err = each(ctx, tx, `select resource, key, version, fencing_token, coalesce(sequence, 0), convert_from(value, 'UTF8'), updated_at from fence.records`,
		func(rows pgx.Rows) error {
			var r storedRecord
			defer func() { s.records = append(s.records, r) }()
			return rows.Scan(&r.resource, &r.key, &r.version, &r.token, &r.sequence, &r.value, &r.updatedAt)
		})
	if err != nil {
		return err
	}
	return each(ctx, tx, `select resource, granted_token, last_token, last_sequence, last_version from fence.fences`,
		func(rows pgx.Rows) error {
			var name string
			var f storedFence
			defer func() { s.fences[name] = f }()
			return rows.Scan(&name, &f.grantedToken, &f.lastToken, &f.lastSequence, &f.lastVersion)
		})
}

func each(ctx context.Context, tx pgx.Tx, sql string, scan func(pgx.Rows) error) error {
	rows, err := tx.Query(ctx, sql)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// holdFence keeps the rows of fences locked, so that what gateways do to them waits, until release is called.
func holdFence(t *testing.T, db *pgxpool.Pool, resources ...string) (release func()) {
	t.Helper()
	ctx := patient(t)
	tx, err := db.Begin(ctx)
	check(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) }) // its error is that it was released, or that the database is gone
	held, err := tx.Exec(ctx, "select from fence.fences where resource = any ($1) for update", resources)
	check(t, err)
	if held.RowsAffected() != int64(len(resources)) {
		t.Fatalf("there are not all fences of %q", resources)
	}
	return func() {
		t.Helper()
		check(t, tx.Rollback(ctx))
	}
}

const waitingStatements = `from pg_stat_activity
	where datname = current_database() and application_name = 'fencegate' and wait_event_type = 'Lock'`

// awaitPatient returns when a statement has waited for longer than a gateway lets a batch of many writes wait (100 ms): that would be given up,
// and sent again by the gateway, if there still is one.
func awaitPatient(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	await.True(t, "a statement waits for the fence as long as it takes", func() bool {
		return ask[bool](t, db, "select exists (select "+waitingStatements+" and clock_timestamp() - query_start > interval '500 ms')")
	})
}

// awaitWaiting returns when so many statements of gateways wait for a lock in the database.
func awaitWaiting(t *testing.T, db *pgxpool.Pool, count int) {
	t.Helper()
	await.True(t, "statements wait for the fence", func() bool {
		return ask[int](t, db, "select count(*) "+waitingStatements) == count
	})
}

// awaitExpiry returns when the newest lease of a lock has expired by the database's clock.
func awaitExpiry(t *testing.T, db *pgxpool.Pool, lock string) {
	t.Helper()
	await.True(t, "the lease expires", func() bool {
		return ask[bool](t, db, `select expires_at <= clock_timestamp() from fence.leases where lock = $1 order by fencing_token desc limit 1`, lock)
	})
}
