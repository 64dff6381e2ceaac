package migrations_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/testenv/postgres"
	"github.com/fencegate/fencegate/migrations"
)

// TestUpgradeOfProtectedTables checks that a migration replaces the trigger functions of protected tables, and leaves
// those of a table alone whose template does not fit any more: these pass no mode.
func TestUpgradeOfProtectedTables(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table kept (id integer); select fence.protect('kept', 'kept/{id}');
		create table parted (id integer) partition by list (id); select fence.protect('parted', 'parted/{id}');
		create table renamed (id integer); select fence.protect('renamed', 'renamed/{id}');
		alter table renamed rename id to other;
		create table typed (id integer); select fence.protect('typed', 'typed/{id}', 'observe');
		alter table typed alter id type date using null;
		drop function fence.check_rows; create function fence.check_rows(oid, text[]) returns void language sql as '';
		create table gone (id integer); select fence.protect('gone', 'gone/{id}'); drop table gone;
		do $$ declare f text; begin
			foreach f in array array(select proname from pg_proc where proname ~ '^check_[0-9]+_(insert|row)$') loop
				execute format('create or replace function fence.%s() returns trigger language plpgsql '
					'as ''begin perform fence.check_rows(tg_relid, array[null]); return null; end''', f);
			end loop; end $$;
		insert into kept values (1);
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
		A insert into renamed values (2)  -- !55000 another type
		A insert into typed values (null)
		A select count(*) from pg_proc where pronamespace = 'fence'::regnamespace and proname = 'check_rows'  -- 1`}})
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

// TestUpgradeKeepsData checks that a database of version 5, with rows in every table that version 6 changes, loses
// nothing and none of the former functions stays beside the new one; that its leases can be renewed and write, its
// waiters are in their queue, and its rejections are counted on.
func TestUpgradeKeepsData(t *testing.T) {
	t.Parallel()
	conn := connect(t, postgres.Empty(t))
	exec(t, conn, "create schema fence")
	if err := migrations.ApplyNumbered(t.Context(), conn, 5); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, dataOfVersion5)
	before := rowsOf(t, conn)
	bringUpToDate(t, conn)
	if after := rowsOf(t, conn); !maps.Equal(after, before) {
		t.Errorf("the rows were\n%v\nand are\n%v", before, after)
	}
	for sql, want := range map[string]string{
		`select status from fence.renew_lease('job', 'w', '00000000-0000-0000-0000-000000000001', 7, 60000)`: "live",
		`select outcome from fence.acquire_lease(fence.lease_request('job', 'x', 'exclusive', 'node', 1000,
			null, 'r', null), 60000, '00000000-0000-0000-0000-000000000002')`: "queued",
		`select count(*)::text from fence.waiters where ticket = 1`:                   "1",
		`select status from fence.keep_alive('00000000-0000-0000-0000-000000000003')`: "live",
		`select verdict from fence.try_guard('job', 7, 1)`:                            "admitted",
		`select prefix || max_hold_ms || require_principal_owner from fence.policies`: "jobs60000false",
		`select principal || count from fence.rejections`:                             "3",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", sql, got, err, want)
		}
	}
}

const dataOfVersion5 = `
	insert into fence.policies (prefix, max_hold_ms) values ('jobs', 60000);
	insert into fence.fences (resource, granted_token, open) values ('job', 7, true);
	insert into fence.gateways values ('00000000-0000-0000-0000-000000000002', clock_timestamp() + interval '1 day');
	insert into fence.sessions (session_id, owner_id, ttl_ms, created_at, expires_at) values
		('00000000-0000-0000-0000-000000000003', 'w', 60000, clock_timestamp(), clock_timestamp() + interval '1 day');
	insert into fence.leases (lock, fencing_token, lease_id, owner_id, ttl_ms, requested_ttl_ms, granted_at, expires_at)
		values ('job', 7, '00000000-0000-0000-0000-000000000001', 'w', 60000, 60000, clock_timestamp(),
			clock_timestamp() + interval '1 day');
	insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, request_id, queued_at, deadline_at) values
		('job', '00000000-0000-0000-0000-000000000002', 'x', 'exclusive', 'node', 1000, 'r', clock_timestamp(),
			clock_timestamp() + interval '1 day');
	insert into fence.rejections (resource, key, code, reason, source, address, fencing_token, granted_token, last_token,
		last_sequence, count, first_at, last_at)
		values ('job', 'k', 'token_stale', 'superseded', 'http', '', 6, 7, 0, 0, 3, clock_timestamp(), clock_timestamp());
	create function fence.wait_path(text, bigint, fence.wait_step[], fence.wait_step[], text) returns void
		language sql as '';
	create function fence.wait_steps(fence.wait_vertex[], fence.wait_step[], text, boolean, integer) returns void
		language sql as '';
	create function fence.wait_vertices(fence.wait_step[], integer, fence.wait_vertex[], boolean) returns void
		language sql as '';
	create function fence.break(text, text) returns void language sql as '';
	create function fence.set_fence(text, bigint, bigint) returns void language sql as '';
	create function fence.lease_request(text, text, text, text, integer, uuid, text, json) returns void
		language sql as '';
	create function fence.blockers(text, text, text, bigint, integer) returns void language sql as '';
	create function fence.leases_and_waits(text[]) returns void language sql as '';
	create function fence.row_statement(text, regclass, json, json, text[], text[]) returns void language sql as '';
	create function fence.write_rows(text, regclass, name, json, json, text[], text[]) returns void language sql as ''`

// rowsOf returns the rows of the tables with data of clients, without the columns that version 6 has added.
func rowsOf(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, table := range []string{"policies", "fences", "gateways", "sessions", "leases", "waiters", "rejections"} {
		var rows string
		sql := `select coalesce(json_agg(to_jsonb(t) - 'principal' - 'require_principal_owner'), '[]')::text from fence.` + table + ` t`
		if err := conn.QueryRow(t.Context(), sql).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		found[table] = rows
	}
	return found
}
