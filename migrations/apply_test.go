package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// acquire grants the lock.
func acquire(t *testing.T, conn *pgx.Conn, lock string) {
	t.Helper()
	exec(t, conn, `
		select fence.acquire_lease(
			fence.lease_request($1, 'owner', 'exclusive', 'node', 60000, null, null, null), 0, null, true)`, lock)
}

// fingerprint changes with every write to the database, even of the same values.
func fingerprint(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var text string
	err := conn.QueryRow(t.Context(), `
		select string_agg(kind || oid || '.' || xmin, ' ' order by kind, oid)
		from (
			select 'f', oid, xmin from pg_proc where pronamespace = to_regnamespace('fence')
			union all
			select 'r', oid, xmin from pg_class where relnamespace = to_regnamespace('fence')
			union all
			select 'n', oid, xmin from pg_namespace) as o (kind, oid, xmin)`).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"tables_version", "guard_revision", "database_identity", "fences", "leases"} {
		var rows string
		sql := "select coalesce(string_agg(t.xmin || to_json(t)::text, ' '), '') from fence." + table + " t"
		err := conn.QueryRow(t.Context(), sql).Scan(&rows)
		if err != nil && !strings.Contains(err.Error(), "42P01") {
			t.Fatal(err)
		}
		text += "\n" + table + " " + rows
	}
	return text
}

// expectUntouched runs what must write nothing to the database.
func expectUntouched(t *testing.T, conn *pgx.Conn, what func()) {
	t.Helper()
	before := fingerprint(t, conn)
	what()
	if after := fingerprint(t, conn); after != before {
		t.Errorf("the database was\n%s\nand is\n%s", before, after)
	}
}

// bringUpToDate migrates a database that is not up to date.
func bringUpToDate(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if err := migrations.Check(t.Context(), conn); !errors.Is(err, migrations.ErrNotMigrated) {
		t.Errorf("before, Check returned %v, want ErrNotMigrated", err)
	}
	if err := migrations.Apply(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	expectMigrated(t, conn)
}

// expectMigrated checks that the schema is complete, as the golden one, and has the newest functions.
func expectMigrated(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
	want := describeSchema(t, connect(t, postgres.Migrated(t)))
	if got := describeSchema(t, conn); got != want {
		t.Errorf("the schema is not what the migrations make (- want, + got):\n%s", difference(want, got))
	}
	var revisions, digest string
	err := conn.QueryRow(t.Context(), `
		select string_agg(v.version || ' ' || g.revision, ', '), min(g.digest)
		from fence.tables_version v, fence.guard_revision g`).
		Scan(&revisions, &digest)
	wantRevisions := fmt.Sprint(len(migrations.NumberedFiles()), " ", migrations.GuardRevision)
	if err != nil || revisions != wantRevisions || digest != migrations.GuardDigest() {
		t.Errorf("the recorded version and digest are %s, %s (%v), want %s, %s",
			revisions, digest, err, wantRevisions, migrations.GuardDigest())
	}
	var locks int
	err = conn.QueryRow(t.Context(), `
		select count(*) from pg_locks
		where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`).
		Scan(&locks)
	if err != nil || locks != 0 {
		t.Errorf("%d advisory locks are left (%v)", locks, err)
	}
}

// TestApplyAtOnce checks that gateways that start at once on an empty database make one schema, and that all succeed.
func TestApplyAtOnce(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	var gateways errgroup.Group
	for range 8 {
		conn := connect(t, url)
		gateways.Go(func() error { return migrations.Apply(t.Context(), conn) })
	}
	if err := gateways.Wait(); err != nil {
		t.Error(err)
	}
	expectMigrated(t, connect(t, url))
}

// TestNewerIsLeftAlone checks that the schema of a newer program is not changed, and is refused unless its functions
// serve this one.
func TestNewerIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"tables":    "update fence.tables_version set version = version + 1",
		"functions": "update fence.guard_revision set revision = revision + 1",
		"newer tables, older functions": `update fence.tables_version set version = version + 1;
			update fence.guard_revision set revision = revision - 1`,
		"older tables, newer functions": `update fence.tables_version set version = version - 1;
			update fence.guard_revision set revision = revision + 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, postgres.Migrated(t))
			exec(t, conn, sql)
			expectUntouched(t, conn, func() {
				err := errors.Join(migrations.Apply(t.Context(), conn), migrations.Check(t.Context(), conn))
				if err != nil {
					t.Error(err)
				}
				_, err = migrations.Script{TokensAbove: new(int64)}.Apply(t.Context(), conn)
				if !errors.Is(err, migrations.ErrNewer) {
					t.Errorf("tokens that are to jump: the error is %v, want ErrNewer", err)
				}
			})
			exec(t, conn, fmt.Sprintf("update fence.guard_revision set serves_from = %d", migrations.GuardRevision+1))
			expectUntouched(t, conn, func() {
				for _, err := range []error{migrations.Apply(t.Context(), conn), migrations.Check(t.Context(), conn)} {
					if !errors.Is(err, migrations.ErrNewer) {
						t.Errorf("the error is %v, want ErrNewer", err)
					}
				}
			})
		})
	}
}

// TestPrereleaseIsRefused checks that a database from before the first release is refused, and not changed, whatever
// numbers it has, and that the refusal names its last token. So is one whose functions have this revision and another
// text.
func TestPrereleaseIsRefused(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"of fence.schema_version": `
			drop schema fence cascade; create schema fence; create sequence fence.tokens;
			create table fence.schema_version (version int4 not null);
			insert into fence.schema_version values (11);
			create table fence.guard_revision (only_row boolean primary key, revision integer not null, digest text not null);
			insert into fence.guard_revision values (true, 2, 'digest')`,
		"of fence.migration_version": `
			alter table fence.tables_version rename to migration_version;
			update fence.migration_version set version = 9;
			update fence.guard_revision set revision = 7, digest = 'digest'`,
		"of this version, with other functions": "update fence.guard_revision set digest = 'that of other functions'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, postgres.Migrated(t))
			exec(t, conn, sql)
			exec(t, conn, "select setval('fence.tokens', 1234)")
			expectUntouched(t, conn, func() {
				for _, err := range []error{migrations.Apply(t.Context(), conn), migrations.Check(t.Context(), conn)} {
					if !errors.Is(err, migrations.ErrPrerelease) || !strings.Contains(err.Error(), "drop schema fence cascade") ||
						!strings.Contains(err.Error(), "--tokens-above 1234`") {
						t.Errorf("the error is %v, want ErrPrerelease, what to do, and the last token", err)
					}
				}
			})
			exec(t, conn, "drop schema fence cascade")
			bringUpToDate(t, conn)
		})
	}
}

// TestOlderIsBroughtUpToDate checks that the schema of an older program, or of one that died on the way, is brought up
// to date, and that the data stays.
func TestOlderIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	const older = "update fence.guard_revision set revision = revision - 1;"
	for name, sql := range map[string]string{
		"older functions": older + `
			create or replace function fence.ancestors(p_name text) returns text[]
			language sql immutable parallel safe as $$ select array['old'] $$`,
		"a function is missing": older + "drop function fence.admit",
		"a function is open to everyone": older + `
			grant execute on function fence.acquire_lease to public; grant usage on schema fence to public`,
		"a table is open to everyone": older + "grant all on fence.fences to public",
		"no functions": `do $$ declare f text; begin
			foreach f in array array(
				select oid::regprocedure::text from pg_proc where pronamespace = 'fence'::regnamespace) loop
				execute 'drop function if exists ' || f || ' cascade'; end loop; end $$;
			delete from fence.guard_revision`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, postgres.Migrated(t))
			acquire(t, conn, "lock")
			exec(t, conn, sql)
			bringUpToDate(t, conn)
			acquire(t, conn, "another")
			var locks string
			const sql = "select string_agg(lock || fencing_token, ' ' order by fencing_token) from fence.leases"
			err := conn.QueryRow(t.Context(), sql).Scan(&locks)
			if err != nil || locks != "lock1 another2" {
				t.Errorf("the leases are %s (%v)", locks, err)
			}
		})
	}
}

// TestEmptyIsBroughtUpToDate checks that a database without tables gets the schema.
func TestEmptyIsBroughtUpToDate(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"nothing is there":    "select",
		"the schema is there": "create schema fence",
		"its version is there": `create schema fence; create table fence.tables_version (version int4 primary key);
			insert into fence.tables_version values (0)`,
		"what is made is open to everyone": `alter default privileges grant all on functions to public;
			alter default privileges grant all on tables to public; alter default privileges grant all on sequences to public`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, postgres.Empty(t))
			exec(t, conn, sql)
			bringUpToDate(t, conn)
		})
	}
}

// TestFailureReplacesNothing checks that the functions are replaced all together or not at all.
func TestFailureReplacesNothing(t *testing.T) {
	t.Parallel()
	conn := connect(t, postgres.Migrated(t))
	exec(t, conn, `
		update fence.guard_revision set revision = revision - 1;
		create or replace function fence.admit(
			p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
			p_locked text[], p_wait boolean)
		returns fence.ruling[] language sql as $$ select null::fence.ruling[] $$;
		drop function fence.write; create function fence.write(
			p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
			p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[],
			p_chain_ends integer[], p_wait_ms integer)
		returns text language sql as $$ select 'a result of another type' $$`)
	expectUntouched(t, conn, func() {
		const name = "migrate, fence.write:"
		if err := migrations.Apply(t.Context(), conn); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want one that begins with %s", err, name)
		}
	})
	exec(t, conn, "drop function fence.write")
	bringUpToDate(t, conn)
}

// TestUpgradeOfProtectedTables checks that a migration replaces the trigger functions of protected tables, and leaves
// those of a table alone whose template does not fit any more.
func TestUpgradeOfProtectedTables(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table kept (id integer); select fence.protect('kept', 'kept/{id}');
		create table parted (id integer) partition by list (id); select fence.protect('parted', 'parted/{id}');
		create table renamed (id integer); select fence.protect('renamed', 'renamed/{id}');
		alter table renamed rename id to other;
		create table gone (id integer); select fence.protect('gone', 'gone/{id}'); drop table gone;
		do $$ declare f text; begin
			foreach f in array array(select proname from pg_proc where proname ~ '^check_[0-9]+_(insert|row)$') loop
				execute format('create or replace function fence.%s() returns trigger language plpgsql '
					'as ''begin raise ''''of an older revision''''; end''', f);
			end loop; end $$;
		update fence.guard_revision set revision = revision - 1`)
	if err := migrations.Apply(t.Context(), connect(t, url)); err != nil {
		t.Fatal(err)
	}
	runScripts(t, url, nil, []script{{"after", `
		A select problem is null from fence.protected where template = 'kept/{id}'  -- t
		A select problem is null from fence.protected where template = 'parted/{id}'  -- t
		A select problem from fence.protected where template = 'renamed/{id}'
			-- the table public.renamed has no column 'id'
		A insert into kept values (2)  -- !LF101 kept/2
		A select test.grant('kept/2')  -- $t
		A begin; select fence.guard('kept/2', $t); insert into kept values (2); commit
		A insert into renamed values (2)  -- !P0001 of an older revision`}})
}

// TestUpgradeBesideOpenTransactions checks that a migration neither waits for an open transaction that has written to a
// protected table, nor makes others wait. And that it does not wait long for an open fence.protect: it tries again, and
// returns ErrLocked in the end.
func TestUpgradeBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	url := scripted(t, "create table written (id integer); select fence.protect('written', 'written/{id}')")
	writer, protector, conn := connect(t, url), connect(t, url), connect(t, url)
	exec(t, writer, "begin; select fence.guard('written/1', test.grant('written/1')); insert into written values (1)")
	older := func() { exec(t, conn, "update fence.guard_revision set revision = revision - 1") }
	older()
	if err := migrations.ApplyWithin(t.Context(), conn, 5*time.Second, 1); err != nil {
		t.Error(err)
	}

	older()
	exec(t, protector, "begin; create table open (id integer); select fence.protect('open', 'open/{id}')")
	if err := migrations.ApplyWithin(t.Context(), conn, time.Millisecond, 2); !errors.Is(err, migrations.ErrLocked) {
		t.Errorf("beside an open fence.protect, Apply returned %v, want ErrLocked", err)
	}
	applied := make(chan error, 1)
	go func() { applied <- migrations.ApplyWithin(t.Context(), conn, time.Second/10, 100) }()
	awaitBlocked(t, connect(t, url), applied)
	exec(t, protector, "commit")
	if err := <-applied; err != nil {
		t.Errorf("after the end of fence.protect, Apply returned %v", err)
	}
	exec(t, writer, "commit")
	if err := migrations.Check(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

// TestUnsuitableDatabase checks that a database with another encoding is refused, and not changed.
func TestUnsuitableDatabase(t *testing.T) {
	t.Parallel()
	admin := connect(t, postgres.Empty(t))
	name := admin.Config().Database + "_ascii"
	exec(t, admin, "create database "+name+" template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	config := admin.Config().Copy()
	config.Database = name
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	expectUntouched(t, conn, func() {
		err := migrations.Apply(t.Context(), conn)
		if !errors.Is(err, migrations.ErrUnsuitable) || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("the error is %v, want ErrUnsuitable that names UTF8", err)
		}
	})
}

// TestApplyWaits checks that a second Apply waits for the first. If its context ends, it returns and changes nothing.
func TestApplyWaits(t *testing.T) {
	t.Parallel()
	url := postgres.Empty(t)
	other, conn, watch := connect(t, url), connect(t, url), connect(t, url)
	exec(t, other, "select pg_advisory_lock($1)", int64(migrations.AdvisoryLock))
	gone, cancel := context.WithCancel(t.Context())
	applied := make(chan error, 1)
	apply := func(ctx context.Context, conn *pgx.Conn) { applied <- migrations.Apply(ctx, conn) }

	go apply(gone, conn)
	awaitBlocked(t, watch, applied)
	cancel()
	if err := <-applied; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want context.Canceled", err)
	}
	if err := migrations.Check(t.Context(), watch); !errors.Is(err, migrations.ErrNotMigrated) {
		t.Errorf("Check returned %v, want ErrNotMigrated", err)
	}

	go apply(t.Context(), connect(t, url))
	awaitBlocked(t, watch, applied)
	exec(t, other, "select pg_advisory_unlock($1)", int64(migrations.AdvisoryLock))
	if err := <-applied; err != nil {
		t.Error(err)
	}
	expectMigrated(t, watch)
}

// awaitBlocked returns when a statement in the database waits for a lock. If the work ends before that, the test fails.
func awaitBlocked(t *testing.T, conn *pgx.Conn, work <-chan error) {
	t.Helper()
	for blocked := false; !blocked; {
		err := conn.QueryRow(t.Context(), `
			select exists (
				select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-work:
			t.Fatalf("Apply returned %v before it waited for a lock", err)
		default:
		}
	}
}
