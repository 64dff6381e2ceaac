package migrations_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/internal/test/testenv/postgres"
)

// attackScripts are attempts to write without an admission.
var attackScripts = []script{
	{"forged settings", `
		A create table forged (id integer primary key, n integer); insert into forged values (1, 1);
			select fence.protect('forged', 'forged/{id}');
			grant select, insert, update, delete, truncate on forged to $app; select test.grant('forged/1')  -- $t
		A set session authorization $app; set session_replication_role = replica  -- !42501
		A set fencegate.admitted = 'forged/1'; set fencegate.resource = 'forged/1'; update forged set n = 2  -- !LF101
		A begin; select fence.set_token(9007199254740991); update forged set n = 2  -- !LF102
		A rollback
		A set transform_null_equals = on; set array_nulls = off;
			select set_config('standard_conforming_strings', 'off', false)
				where current_setting('server_version_num')::integer < 190000;
			set enable_indexscan = off; set plan_cache_mode = force_generic_plan; set fencegate.token = '';
			update forged set n = 2  -- !LF101
		A alter table forged disable trigger fencegate_update  -- !42501
		A drop trigger fencegate_update on forged  -- !42501
		A truncate forged  -- !LF107 TRUNCATE is rejected
		A select fence.protect('forged', 'x/{id}', 'observe')  -- !42501
		A select fence.unprotect('forged')  -- !42501
		A update fence.fences set admitted_in = pg_current_xact_id()  -- !42501
		A select * from fence.fences  -- !42501
		A select fence.check_rows('forged'::regclass, '{}', false)  -- !42501
		A update forged set n = 2  -- !LF101`},
	{"shadowed operators, functions, tables and types", `
		A create table shadowed (id integer primary key, n text); insert into shadowed values (1, 'a');
			select fence.protect('shadowed', 'shadowed/{id}/{n}');
			grant select, insert, update, delete on shadowed to $app; create schema shadow authorization $app
		A set session authorization $app;
			create function shadow.same(text, text) returns boolean language sql as 'select true';
			create operator shadow.= (leftarg = text, rightarg = text, function = shadow.same);
			create operator shadow.<> (leftarg = text[], rightarg = text[], function = shadow.none)  -- !42883
		A create function shadow.pg_current_xact_id() returns xid8 language sql as 'select null::xid8';
			create function shadow.age(xid) returns integer language sql as 'select 0';
			create function shadow.array_length(text[]) returns integer language sql as 'select 0'
		A create temp table fencegate_new (id integer, n text);
			create temp table fencegate_old (id integer, n text); create temp table admitted (resource text);
			insert into admitted values ('shadowed/1/a');
			create temp table fences as select 'shadowed/1/a' as resource
		A create type pg_temp.text as (x integer);
			create function pg_temp.pg_partition_root(oid) returns oid language sql as 'select null::oid'
		A set search_path = pg_temp, shadow, pg_catalog, public; update shadowed set n = 'b/'  -- !LF101 shadowed/1/
		A insert into shadowed values (2, 'b')  -- !LF101 shadowed/2/b
		A delete from shadowed  -- !LF101
		A select verdict from fence.try_guard('shadowed/1/a', 1)  -- token_unknown
		A reset search_path; set session authorization default; alter role $app set search_path = shadow;
			drop schema shadow cascade`},
	{"an owner who is not fencegate: no other trigger with its functions, and no other's table", `
		A create table used (id integer primary key); alter table used owner to $owner
		B set session authorization $owner; select fence.protect('used', 'used/{id}')
		B insert into used values (1)  -- !LF101 used/1
		A select id from fence.protected_tables where table_id = 'used'::regclass  -- $id
		A select problem is null from fence.protected where table_name = 'used'  -- t
		B create temp view fencegate_new as select 7 as id
		B create trigger mine after insert on used for each statement execute function fence.check_${id}_insert()
			-- !42501
		B create or replace trigger fencegate_insert after insert on used for each statement execute function
			fence.check_${id}_insert()  -- !42501
		B select fence.prepare_protection('used', 'used/{id}', 'enforce', null)  -- !42501 only fence.protect
		B insert into fence.table_callers (table_id, caller) values ('used'::regclass, 'postgres')  -- !42501
		B insert into fence.table_callers (table_id) values ('used'::regclass);
			select fence.prepare_protection('used', 'used/{id}', 'enforce', null)  -- !42501 only fence.protect
		B begin; insert into fence.table_callers (table_id) values ('used'::regclass);
			select fence.prepare_protection('used', 'used/{id}', 'enforce', null);
			create trigger mine after insert on used for each statement execute function fence.check_${id}_insert()
			-- !42501
		A create table others (id integer); select fence.protect('others', 'others/{id}')
		B rollback; select fence.protect('others', 'x/{id}', 'observe')  -- !42501 own
		B begin; insert into fence.table_callers (table_id) values ('others'::regclass);
			select fence.forget_protection('others')  -- !42501 own
		A begin; insert into fence.table_callers (table_id) values ('others'::regclass);
			select fence.forget_protection('used')  -- !42501 only fence.protect
		A rollback
		B rollback; select fence.unprotect('others')  -- !42501
		A select template, mode, problem is null from fence.protected where table_name = 'others'
			-- others/{id}|enforce|t
		B drop table used; create table public.used (id integer);
			select fence.protect('public.used', 'used/{id}'); select fence.unprotect('public.used')
		A select count(*) from pg_proc where starts_with(proname, 'check_${id}_')  -- 0`},
	{"an owner whose code runs in a session of another role has no rights of that role, and one keeps its own", `
		A create schema ${owner}_3 authorization $owner; create table victim (id integer);
			select fence.protect('victim', 'victim/{id}')
		B set session authorization $owner; create table ${owner}_3.trap (id integer);
			grant insert on ${owner}_3.trap to $app; grant usage on schema ${owner}_3 to $app
		B create function ${owner}_3.trap(i integer) returns integer immutable security definer language plpgsql as 'begin
			if session_user <> ''$owner'' then perform fence.prepare_protection(''public.victim'', ''junk'', ''observe'', null);
			end if; return i; end'
		B create index on ${owner}_3.trap (${owner}_3.trap(id)); insert into ${owner}_3.trap select generate_series(1, 9)
		A analyze ${owner}_3.trap  -- !42501 only fence.protect
		B create or replace function ${owner}_3.trap(i integer) returns integer immutable security definer language plpgsql
			as 'begin if session_user <> ''$owner'' then perform fence.protect(''public.victim'', ''junk'', ''observe'', null);
			end if; return i; end'
		A analyze ${owner}_3.trap  -- !42501 $owner does not own public.victim
		A insert into ${owner}_3.trap values (1)  -- !42501 $owner does not own public.victim
		A select template, mode from fence.protected where table_name = 'victim'  -- victim/{id}|enforce
		B create function ${owner}_3.protect() returns void security definer language sql as
			'select fence.protect(''${owner}_3.trap'', ''trap/{id}'')'
		C set session authorization $app; select ${owner}_3.protect()
		A select template from fence.protected where table_name = '${owner}_3.trap'  -- trap/{id}`},
	{"an application without rights on any table: no trigger with functions of others' tables", `
		A create table others_plain (id integer); select fence.protect('others_plain', 'others/{id}');
			create table others_parts (id integer) partition by list (id);
			select fence.protect('others_parts', 'others/{id}')
		A select coalesce(string_agg(p.proname, ' '), 'none') from pg_proc p
			where p.pronamespace = 'fence'::regnamespace and p.prorettype = 'trigger'::regtype
				and has_function_privilege('$app', p.oid, 'execute')  -- none`},
	{"an owner who uses its row function elsewhere does not stop others from protecting tables", `
		B set session authorization $owner; create table public.forked (id integer) partition by list (id);
			select fence.protect('public.forked', 'forked/{id}'); create table public.fork (id integer)
		A select id from fence.protected_tables where template = 'forked/{id}'  -- $id
		B create trigger mine after insert on public.fork for each row execute function fence.check_${id}_row();
			drop table public.forked
		A create table forked (id integer); select fence.protect('forked', 'unforked/{id}')
		A select count(*) from fence.protected_tables where id = $id  -- 1
		B drop table public.fork; select fence.protect('forked', 'unforked/{id}')  -- !42501
		A select fence.protect('forked', 'unforked/{id}'); select count(*) from fence.protected_tables where id = $id  -- 0
		A select count(*) from pg_proc where starts_with(proname, 'check_${id}_')  -- 0`},
	{"an owner whose types have casts: its functions never run with fencegate's rights", `
		A create schema $owner authorization $owner;
			create table casting (id integer, name text, unit uuid, n integer);
			alter table casting owner to $owner; insert into casting values (1, 'a/b', gen_random_uuid(), 0);
			create table castings (id integer, name text, unit uuid, n integer) partition by list (n);
			create table castings_0 partition of castings default; alter table castings owner to $owner;
			alter table castings_0 owner to $owner
		A select fence.protect('casting', 'c/{id}/{name}/{unit}');
			select fence.protect('castings', 'c/{id}/{name}/{unit}')
		B set session authorization $owner; create type $owner.evil as enum ('a');
			create function $owner.evil_text($owner.evil) returns text language plpgsql as 'begin raise ''it ran as
			%'', current_user; end';
			create function $owner.evil_integer($owner.evil) returns integer language plpgsql as 'begin raise ''it
			ran as %'', current_user; end';
			create cast ($owner.evil as text) with function $owner.evil_text as implicit;
			create cast ($owner.evil as integer) with function $owner.evil_integer as implicit
		B create function $owner.same(text, text) returns boolean language plpgsql as 'begin raise ''it ran as %'',
			current_user; end'; create operator $owner.= (leftarg = text, rightarg = text, function = $owner.same);
			set search_path = $owner, pg_catalog, public; update casting set n = 1  -- !LF101 a%2Fb
		B update castings set n = 1; insert into castings_0 values (1, 'a/b', null, 0)  -- !LF101 a%2Fb
		B alter table casting alter id type evil using 'a'; alter table castings alter id type evil using 'a'
		C set session authorization $owner; update casting set n = 1  -- !55000 another type
		C delete from casting  -- !55000
		C insert into castings values ('a')  -- !55000
		B alter table casting alter id type integer using 1; alter table casting alter name type evil using 'a';
			alter table castings alter id type integer using 1; alter table castings alter name type evil using 'a'
		D set session authorization $owner; update casting set n = 1  -- !42804
		D insert into castings values (1, 'a')  -- !55000
		B alter table casting alter name type text using 'x'; alter table casting alter unit type evil using 'a'
		E set session authorization $owner; update casting set n = 1  -- !55000`},
	{"an owner who renames a column of the template: PostgreSQL reads row.column as column(row)", `
		A create schema ${owner}_2 authorization $owner; create table renamed (id integer, n integer);
			alter table renamed owner to $owner; insert into renamed values (1, 0);
			select fence.protect('renamed', 'renamed/{id}')
		B set session authorization $owner; alter table renamed rename id to id_before;
			create function ${owner}_2.id(record) returns integer language plpgsql as 'begin raise ''it ran as %'',
			current_user; end'; set search_path = ${owner}_2, public
		B insert into renamed values (2, 0)  -- !42703
		B update renamed set n = 1  -- !42703
		B delete from renamed  -- !42703`},
	{"what the owner of the table can do is shown", `
		A create table owned (id integer); select fence.protect('owned', 'owned/{id}');
			alter table owned disable trigger fencegate_insert; insert into owned values (1);
			select problem from fence.protected where table_name = 'owned'
			-- trigger fencegate_insert on public.owned is disabled
		A alter table owned enable trigger fencegate_insert;
			select problem from fence.protected where table_name = 'owned'
			-- trigger fencegate_insert on public.owned does not always fire
		A select fence.protect('owned', 'owned/{id}'); insert into owned values (2)  -- !LF101
		A drop trigger fencegate_truncate on owned;
			select problem from fence.protected where table_name = 'owned'
			-- trigger fencegate_truncate on public.owned is missing
		A select fence.protect('owned', 'owned/{id}');
			select 'owned'::regclass::oid, id from fence.protected_tables where table_id = 'owned'::regclass
		A select id from fence.protected_tables where table_id = 'owned'::regclass  -- $id
		A create or replace trigger fencegate_delete after delete on owned referencing old table as fencegate_old
			for each statement when (false) execute function fence.check_${id}_delete();
			alter table owned enable always trigger fencegate_delete;
			select problem from fence.protected where table_name = 'owned'
			-- trigger fencegate_delete on public.owned has another definition
		A select fence.protect('owned', 'owned/{id}');
			create or replace function fence.check_${id}_update() returns trigger language plpgsql as 'begin return
			null; end'; select problem from fence.protected where table_name = 'owned'
			-- the trigger functions are not those of the template any more: call fence.protect again
		A select fence.protect('owned', 'owned/{id}');
			select problem is null from fence.protected where table_name = 'owned'  -- t`},
	{"a look at a table waits 10 ms at most for a lock on it", `
		A create table locked (id integer); select fence.protect('locked', 'locked/{id}')
		A create or replace trigger fencegate_replica after insert on locked for each row when (new.id > 0)
			execute function test.nothing(); alter table locked enable replica trigger fencegate_replica;
			set statement_timeout = '10s'
		B begin; lock table locked
		A select problem is null from fence.protected where template = 'locked/{id}'  -- t
		B rollback
		A select problem from fence.protected where template = 'locked/{id}'
			-- trigger fencegate_replica on public.locked has another definition`},
	{"collations that take different texts for the same", `
		A create collation blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			create table blind (name text collate blind, other text collate "C", n integer);
			insert into blind values ('Bob', 'x', 0)
		A select fence.protect('blind', 'blind/{name}/{other}'); select test.grant('blind/bob/x')  -- $t
		A begin; select fence.guard('blind/bob/x', $t, 1); update blind set name = 'bob'  -- !LF101 blind/Bob/x
		A rollback; begin; select fence.guard('blind/bob/x', $t, 1);
			insert into blind values ('bob', 'x', 1), ('BOB', 'x', 2)  -- !LF101 blind/BOB/x
		A rollback; begin; select fence.guard('blind/bob/x', $t, 1); insert into blind values ('bob', 'x', 1); commit
		A create table blind_parts (name text collate blind, n integer) partition by list (n);
			create table blind_part partition of blind_parts default; insert into blind_parts values ('Bob', 0);
			select fence.protect('blind_parts', 'parts/{name}'); select test.grant('parts/bob')  -- $u
		A begin; select fence.guard('parts/bob', $u, 1); update blind_parts set name = 'bob'  -- !LF101 parts/Bob`},
	{"replicated rows: session_replication_role = replica", `
		A create table replicated (id integer primary key, n integer); insert into replicated values (1, 1);
			select fence.protect('replicated', 'replicated/{id}')
		A alter table replicated enable always trigger fencegate_replica;
			select problem from fence.protected where table_name = 'replicated'
			-- trigger fencegate_replica on public.replicated does not fire for replicated rows alone
		A select fence.protect('replicated', 'replicated/{id}')
		A set session_replication_role = replica; update replicated set n = 2  -- !LF101 replicated/1
		A insert into replicated values (2, 2)  -- !LF101 replicated/2
		A delete from replicated  -- !LF101
		A truncate replicated  -- !LF107
		A select test.grant('replicated/1')  -- $t
		A begin; select fence.guard('replicated/1', $t, 1); update replicated set n = 2;
			update replicated set id = 2  -- !LF101 replicated/2`},
	{"an admission of another transaction", `
		A create table another (id integer primary key); insert into another values (1);
			select fence.protect('another', 'another/{id}'); select test.grant('another/1')  -- $t
		A begin; select fence.guard('another/1', $t, 1)  -- t
		B begin; delete from another  -- !LF101
		A commit; delete from another  -- !LF101
		B rollback; begin; delete from another  -- !LF101
		B rollback; begin; savepoint s; select fence.guard('another/1', $t, 2); rollback to s;
			delete from another  -- !LF101
		B rollback; begin; select pg_current_xact_id()
		A begin; select fence.guard('another/1', $t, 3); commit
		B delete from another  -- !LF101
		B rollback`},
	{"a fence that a restored dump says was admitted in a transaction of this number", `
		A create table future (id bigint); select fence.protect('future', 'future/{id}')
		A insert into fence.fences (resource, admitted_in) select 'future/' || n,
			n::text::xid8 from generate_series(pg_current_xact_id()::text::bigint,
			pg_current_xact_id()::text::bigint + 10000) n
		A begin; select count(*) from fence.fences where resource = 'future/' || pg_current_xact_id()::text and
			admitted_in = pg_current_xact_id()  -- 1
		A insert into future select pg_current_xact_id()::text::bigint  -- !LF101`},
	{"a role with the right to replace triggers is shown", `
		A create table replaced (id integer); select fence.protect('replaced', 'replaced/{id}');
			grant all on replaced to $app;
			select problem from fence.protected where table_name = 'replaced'
			-- $app may replace the triggers: revoke trigger on public.replaced from $app
		B set session authorization $app;
			create function pg_temp.nothing() returns trigger language plpgsql as 'begin return null; end';
			create or replace trigger fencegate_insert after insert on replaced execute function pg_temp.nothing();
			insert into replaced values (1)
		A revoke trigger on replaced from $app;
			select problem from fence.protected where table_name = 'replaced'
			-- trigger fencegate_insert on public.replaced does not always fire
		A select fence.protect('replaced', 'replaced/{id}');
			select problem is null from fence.protected where table_name = 'replaced'  -- t
		B insert into replaced values (2)  -- !LF101
		A grant trigger on replaced to public;
			select problem from fence.protected where table_name = 'replaced'
			-- public may replace the triggers: revoke trigger on public.replaced from public
		A select fence.protect('replaced', 'replaced/{id}', 'observe')  -- !55000 public may replace the triggers
		A revoke trigger on replaced from public; select fence.protect('replaced', 'replaced/{id}')
		A create table granted (id integer primary key); grant all on granted to $app;
			select fence.protect('granted', 'granted/{id}')  -- !55000 revoke trigger on public.granted from $app
		A create table parts (id integer) partition by list (id); create table part partition of parts default;
			grant trigger on part to $app;
			select fence.protect('parts', 'parts/{id}')  -- !55000 revoke trigger on public.part from $app
		A revoke trigger on part from $app; select fence.protect('parts', 'parts/{id}')`},
	{"the application's role may call and read what it needs", `
		A create table roles (id text primary key); select fence.protect('roles', 'roles/{id}');
			grant select, insert, update, delete on roles to $app; select test.grant('roles/a%2Fb')  -- $t
		A set session authorization $app; begin; select fence.guard('roles/' || fence.segment('a/b'), $t, 1);
			insert into roles values ('a/b'); commit
		A select verdict from fence.try_guard('roles/a%2Fb', $t, 1)  -- token_reused
		A select problem is null from fence.protected where table_name = 'roles'  -- t`},
}

// protectedDatabase returns a database for scripts, and their variables.
func protectedDatabase(t *testing.T) (url string, variables map[string]string) {
	t.Helper()
	url = postgres.Migrated(t)
	return url, protectedOn(t, url)
}

func TestProtect(t *testing.T) {
	t.Parallel()
	url, variables := protectedDatabase(t)
	runScripts(t, url, variables, slices.Concat(protectScripts, replacedScripts, settingsScripts, attackScripts, namesScripts,
		rejectionScripts))
}

// TestTokenOfAConnection checks that a token in the options of a connection counts in each of its transactions.
func TestTokenOfAConnection(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		create table jobs (id integer primary key); select fence.protect('jobs', 'jobs/{id}');
		select fence.put_policy('', 'same_token', 'builtin', false, false, null, null, false, 100, null)`)
	var token int64
	if err := connect(t, url).QueryRow(t.Context(), "select test.grant('jobs/1')").Scan(&token); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["fencegate.token"] = fmt.Sprint(token)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	exec(t, conn, "insert into jobs values (1)")
	exec(t, conn, "delete from jobs")
	exec(t, conn, "set fencegate.token = '"+fmt.Sprint(token+1)+"'")
	if state := stateOf(t, conn, "insert into jobs values (1)"); state != "22023" {
		t.Errorf("another token: SQLSTATE %q, want 22023", state)
	}
	exec(t, conn, "reset fencegate.token")
	exec(t, conn, "insert into jobs values (1)")
}

// TestShadowedNames checks that the functions call nothing and read nothing that their caller has made, whatever its
// search_path: temporary and other tables, functions, operators and types with the names of ours and of the catalog's.
func TestShadowedNames(t *testing.T) {
	t.Parallel()
	url := postgres.Migrated(t)
	owner := connect(t, url)
	tables := protect(t, url, makeRole(t, url, "owner"))
	conn, role := app(t, url)
	exec(t, tables, "grant select, insert, update on public.accounts to "+quote(role))
	exec(t, owner, "select fence.allow_names($1::text::regrole, 'accounts')", quote(role))
	exec(t, owner, "create schema astray authorization "+quote(role))
	exec(t, owner, "grant temporary on database "+quote(owner.Config().Database)+" to "+quote(role))
	exec(t, owner, "grant execute on function fence.write_one to "+quote(role)) // it is what gateways call
	for _, table := range list(t, owner, tablesSQL) {
		table = strings.TrimPrefix(table, "fence.")
		exec(t, conn, "create temporary table "+table+" (); create table astray."+table+" ()")
	}
	exec(t, owner, `
		do $$ declare v_type regtype; begin
			for v_type in select oid from pg_type
				where typnamespace = 'fence'::regnamespace and typcategory <> 'A' loop
				execute format('grant usage on type %s to public', v_type);
			end loop; end $$`)
	exec(t, conn, shadowSQL)
	exec(t, conn, "set search_path = pg_temp, astray, fence, public, pg_catalog")

	var id [16]byte
	var token int64
	const acquire = "select lease_id, fencing_token from fence.acquire('accounts/1', 'owner', 60000)"
	if err := conn.QueryRow(t.Context(), acquire).Scan(&id, &token); err != nil {
		t.Fatal(err)
	}
	lease := []any{id, token}
	for _, call := range []struct {
		sql, want string
		args      []any
	}{
		{"select status from fence.acquire('accounts/1', 'another')", "held", nil},
		{"select status from fence.renew('accounts/1', 'owner', $1, $2)", "renewed", lease},
		{"select fence.guard('accounts/1', $1, 1)::pg_catalog.text", "true", lease[1:]},
		{"select verdict from fence.try_guard('accounts/1', $1, 2, null, '')", "admitted", lease[1:]},
		{`select verdict
			from fence.write_one('accounts/1', $1, 3, null, '\x00', 'put', 'key', '\x01', 'text/plain', null, null)`,
			"admitted", lease[1:]},
		{"select problem from fence.protected", "", nil},
		{"insert into public.accounts select 1, 0 from fence.guard('accounts/1', $1, 4) returning 'inserted'", "inserted",
			lease[1:]},
		{"select resource from fence.renew_claim('owner', $1)", "accounts/1", lease[:1]},
		{"select status from fence.release('accounts/1', 'owner', $1, $2)", "released", lease},
		{"select resource from fence.claim('public.accounts', 1, 'owner', 60000, 'balance is not null')", "accounts/1", nil},
		{"select lock from fence.held where table_name is not null", "accounts/1", nil},
	} {
		var got *string
		err := conn.QueryRow(t.Context(), call.sql, call.args...).Scan(&got)
		if got == nil {
			got = new(string)
		}
		if err != nil || *got != call.want {
			t.Errorf("%s: %q (%v), want %q", call.sql, *got, err, call.want)
		}
	}
	exec(t, conn, "select fence.set_token(null, 1)")
	exec(t, conn, "select fence.set_token(1, 2, 'accounts/1', $1)", id)
	if state := stateOf(t, conn, "update public.accounts set balance = 1"); state != "LF101" {
		t.Errorf("an update without a token: SQLSTATE %q, want LF101", state)
	}
}

// shadowSQL makes functions, operators and types in the schema astray, and temporary types, that raise when they are
// used. Their names and arguments are those of all functions of the schema fence, and of the functions, operators and
// types of the catalog that those use.
const shadowSQL = `
do $$
declare
	v_function record;
	v_type     text;
	v_operator text;
begin
	for v_function in
		select distinct p.proname, oidvectortypes(p.proargtypes) as arguments
		from pg_catalog.pg_proc p
		where p.prokind = 'f' and p.prorettype <> 'trigger'::regtype and not p.proargtypes::oid[] && array(
				select t.oid from pg_type t where t.typtype = 'p' and t.typname <> 'anyarray')
			and p.provariadic = 0 and (p.pronamespace = 'fence'::regnamespace
				or p.pronamespace = 'pg_catalog'::regnamespace and p.proname in (
					'age', 'clock_timestamp', 'current_setting', 'set_config', 'gen_random_uuid', 'pg_current_xact_id',
					'octet_length', 'position', 'split_part', 'cardinality', 'hashtext', 'pg_notify', 'nextval', 'floor',
					'random', 'convert_to', 'array_to_string', 'pg_advisory_xact_lock', 'json_typeof', 'chr', 'mod',
					'inet_client_addr', 'host', 'regexp_split_to_table', 'string_agg', 'quote_literal', 'left',
					'string_to_array', 'pg_has_role', 'has_function_privilege'))
	loop
		execute format('create function astray.%I(%s) returns text language plpgsql as
			''begin raise exception ''''astray.%s was called''''; end''',
			v_function.proname, v_function.arguments, v_function.proname);
	end loop;
	foreach v_type in array array[
		'text', 'text[]', 'bigint', 'integer', 'uuid', 'boolean', 'timestamptz', 'interval', 'xid8', 'numeric', 'bytea']
	loop
		execute format('create function astray.shadow(%s, %1$s) returns boolean language plpgsql as
			''begin raise exception ''''an operator of astray was called''''; end''', v_type);
		foreach v_operator in array array['=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '/', '||', '~', '!~'] loop
			execute format('create operator astray.%s (function = astray.shadow, leftarg = %s, rightarg = %2$s)',
				v_operator, v_type);
		end loop;
	end loop;
	create function astray.concat(bigint) returns text language sql as 'select null::pg_catalog.text';
	create function astray.concat_ws(text, text, text) returns text language sql as 'select null::pg_catalog.text';
	foreach v_type in array array[
		'text', 'uuid', 'jsonb', 'json', 'timestamptz', 'interval', 'int8', 'bool', 'xid8', 'regclass', 'bytea']
	loop
		execute format('create domain pg_temp.%I as pg_catalog.int4 check (false)', v_type);
		execute format('create domain astray.%I as pg_catalog.int4 check (false)', v_type);
	end loop;
end $$`
