package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	pgtest "github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// oldestSnapshot returns that of the overview.
func (b *testbed) oldestSnapshot(t *testing.T) time.Duration {
	t.Helper()
	overview, err := b.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return overview.Database.OldestSnapshot
}

// begun opens a transaction beside the Store, runs sql in it, and returns what ends it.
func begun(t *testing.T, url, begin, sql string) (end func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = conn.Close(context.WithoutCancel(t.Context())) }
	t.Cleanup(end)
	for _, statement := range []string{"set application_name = 'old'", begin, sql} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return end
}

// TestOldestSnapshot checks that the overview has the age of the oldest transaction that keeps old versions of rows of
// this database, and that it is not that of another transaction.
func TestOldestSnapshot(t *testing.T) {
	t.Parallel()
	b, cluster := newCrashbed(t, pgtest.Setting("max_prepared_transactions", "1"), pgtest.Setting("autovacuum", "off"))
	b.Exec(t, "create database other")
	b.Exec(t, "create table filled with (autovacuum_enabled = off) as "+
		"select repeat('x', 1000) from generate_series(1, 10000)")
	const session = "select clock_timestamp() - a.xact_start from pg_stat_activity a where a.application_name = 'old'"
	tests := []struct {
		what, begin, sql, age string
		keeps                 bool
		database              string
	}{
		{what: "a snapshot", begin: "begin isolation level repeatable read", sql: "select 1", keeps: true},
		{what: "a transaction that wrote", begin: "begin", sql: "select pg_current_xact_id()", keeps: true},
		{what: "a prepared transaction", begin: "begin; select pg_current_xact_id()", sql: "prepare transaction 'old'",
			age: "select clock_timestamp() - p.prepared from pg_prepared_xacts p", keeps: true},
		{what: "an idle transaction without a snapshot", begin: "begin", sql: "select 1"},
		{what: "a snapshot of another database", begin: "begin isolation level repeatable read", sql: "select 1",
			database: "other"},
	}
	for _, test := range tests {
		url := b.URL
		if test.database != "" {
			url = cluster.DatabaseURL(test.database)
		}
		end := begun(t, url, test.begin, test.sql)
		ages := session
		if test.age != "" {
			ages = test.age
		}
		b.expectSnapshot(t, test.what, ages, test.keeps)
		end()
		if test.age != "" {
			b.Exec(t, "rollback prepared 'old'")
		}
		await(t, "the overview forgets "+test.what, func() bool { return b.oldestSnapshot(t) < time.Millisecond })
	}

	vacuum, stop := context.WithCancel(t.Context())
	vacuumed := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(vacuum, b.URL)
		for _, sql := range []string{
			"set application_name = 'old'", "set vacuum_cost_limit = 1", "set vacuum_cost_delay = 100", "vacuum filled",
		} {
			if err == nil {
				_, err = conn.Exec(vacuum, sql)
			}
		}
		vacuumed <- err
	}()
	await(t, "the vacuum has a snapshot", func() bool {
		return valueOf[bool](t, b, "select exists (select from pg_stat_progress_vacuum join pg_stat_activity a using (pid) "+
			"where a.application_name = 'old' and a.backend_xmin is not null)")
	})
	b.expectSnapshot(t, "a vacuum", session, false)
	stop()
	if err := <-vacuumed; vacuum.Err() == nil || err == nil {
		t.Errorf("the vacuum ended by itself: %v", err)
	}
}

// expectSnapshot expects that the overview has, or has not, the age that the query ages returns.
func (b *testbed) expectSnapshot(t *testing.T, what, ages string, keeps bool) {
	t.Helper()
	before := valueOf[time.Duration](t, b, ages)
	got := b.oldestSnapshot(t)
	after := valueOf[time.Duration](t, b, ages)
	if keeps && (got < before || got > after) {
		t.Errorf("%s: the oldest snapshot is %v old, want %v to %v", what, got, before, after)
	}
	if !keeps {
		await(t, what+" does not count", func() bool {
			age := valueOf[time.Duration](t, b, ages)
			return b.oldestSnapshot(t) < age
		})
	}
}

// TestOldestSnapshotOfAStandby checks that a standby with hot_standby_feedback counts, with a replication slot or
// without, if an old snapshot is open there, and only then.
func TestOldestSnapshotOfAStandby(t *testing.T) {
	t.Parallel()
	const report = time.Second // the shortest wal_receiver_status_interval
	for _, slot := range []string{"", "standby"} {
		t.Run(fmt.Sprintf("slot %q", slot), func(t *testing.T) {
			t.Parallel()
			b, primary := newCrashbed(t)
			keeper := "pg_stat_replication where backend_xmin is not null"
			if slot != "" {
				b.Exec(t, "select pg_create_physical_replication_slot($1)", slot)
				keeper = "pg_replication_slots where xmin is not null"
			}
			standby := primary.Standby(pgtest.Setting("hot_standby_feedback", "on"), pgtest.Setting("primary_slot_name", slot),
				pgtest.Setting("wal_receiver_status_interval", "1s"))
			end := begun(t, standby.URL(), "begin isolation level repeatable read", "select 1")
			await(t, "the standby keeps rows by "+keeper, func() bool {
				return valueOf[bool](t, b, "select exists (select from "+keeper+")")
			})
			work := func() time.Duration {
				b.Exec(t, "select pg_current_xact_id()")
				return b.oldestSnapshot(t)
			}
			await(t, "the snapshot of the standby gets old", func() bool { return work() > 3*report })
			end()
			await(t, "the snapshot of the standby has ended", func() bool { return work() < report })
		})
	}
}
