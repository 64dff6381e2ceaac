package migrations_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencegate/fencegate/migrations"
)

// The names of scripts for mutations.
const (
	namesOfRoles = "a role that may use some names: the names themselves and those below, for every caller"
	rowsOfRoles  = "a role that may use some names: rows of others show it nothing, with and without a token"
	seenByRoles  = "a role that may use some names sees no other protected table, and no owner of a lease above"
)

// namesScripts are about roles that may use some names: $some may use some and tenants/7, and tries to use others.
var namesScripts = []script{
	{namesOfRoles, `
		A select test.grant('other/1')  -- $t
		A create function public.lend(text, bigint) returns boolean security definer language sql as
			'select fence.guard($1, $2)'; create role ${some}_member in role $some;
			create role ${some}_other; select fence.allow_names('${some}_other', 'other')
		B set session authorization $some; select fence.guard('other/1', $t)
			-- !42501 the role $some may not use the name 'other/1'
		B select fence.guard('other/1', $t)  -- !42501 select fence.allow_names('$some', 'other/1')
		B select public.lend('other/1', $t)  -- !42501 $some may not use
		B select fence.guard('other/1', $t, 1, null, 'digest')  -- !42501
		B select fence.try_guard('other/1', $t)  -- !42501
		B begin; select fence.set_token($t, 1, 'some/1'); select fence.guard('other/1', $t)  -- !42501
		B rollback; select fence.try_guard('some-x/1', $t)  -- !42501
		B select fence.acquire('some%2F1', 'owner')  -- !42501
		B select fence.acquire('som', 'owner')  -- !42501
		B select fence.acquire('Some', 'owner')  -- !42501
		B select fence.acquire('some/../other', 'owner')  -- !22023
		B select fence.guard(null, 1)  -- !22023
		B select fence.acquire('tenants', 'owner', scope => 'subtree')  -- !42501
		B select fence.acquire('tenants/70', 'owner')  -- !42501
		B select status from fence.acquire('tenants/7', 'owner', scope => 'subtree')  -- granted
		B select lease_id, fencing_token from fence.acquire('some', 'owner')
		B select fencing_token from fence.acquire('some/1/2', 'owner')  -- $mine
		B begin isolation level serializable; select fence.guard('some/1/2', $mine, 1); commit
		B set role $app  -- !42501
		B select fence.allow_names('$some', '')  -- !42501
		B select fence.disallow_names('$some', 'some')  -- !42501
		B insert into fence.allowed_names values ('other', '$some'::regrole)  -- !42501
		B select fence.all_names()  -- !42501
		C set session authorization ${some}_member; select fence.guard('other/1', $t)  -- !42501 ${some}_member may not
		C select status from fence.acquire('some/1', 'owner')  -- granted
		C set role $some; select fence.guard('other/1', $t)  -- !42501
		A select fence.guard('other/1', $t)  -- t
		A drop role ${some}_member; drop role ${some}_other`},
	{"a role that may use all names by a membership that it does not inherit", `
		A select test.grant('inherited/1')  -- $t
		A create role ${app}_login noinherit in role $app, $some
		B set session authorization ${app}_login; set role $app; select fence.guard('inherited/1', $t)  -- t
		B set role $some; select fence.guard('inherited/1', $t, 1)  -- t
		A revoke $app from ${app}_login
		B select fence.guard('inherited/1', $t, 2)  -- !42501
		A drop role ${app}_login`},
	{rowsOfRoles, `
		A create table named (name text primary key, n integer); insert into named values ('some', 1), ('strange', 1);
			select fence.protect('named', '{name}'); grant select, insert, update, delete on named to $some
		A create table whole (id integer); select fence.protect('whole', 'strange'); grant all on whole to $some;
			revoke trigger on whole from $some
		A select test.grant('strange')  -- $t
		A select test.grant('some')  -- $u
		B set session authorization $some; update named set n = 2 where name = 'strange'
			-- !42501 the role $some may not use the name 'strange'
		B update named set n = 2 where name = 'some'  -- !LF101 "granted_token":$u
		B begin; select fence.set_token($t, 1); update named set n = 2 where name = 'strange'  -- !42501
		B rollback; begin; select fence.set_token($t, 1); insert into named values ('stranger')  -- !42501
		B rollback; begin; select fence.set_token($t, 1); update whole set id = 2;
			insert into whole values (1)  -- !42501
		B rollback; begin; select fence.set_token($t, 1); truncate whole  -- !42501
		B rollback; begin; select fence.set_token($t, 1, 'strange'); update named set n = 2 where name = 'strange'
			-- !42501
		B rollback; begin; select fence.set_token($u, 1); update named set n = 2 where name = 'some'; commit
		A select string_agg(name || n, ' ' order by name) from named  -- some2 strange1
		A select last_token from fence.fences where resource = 'strange'  -- 0`},
	{"a role that may use some names: in the mode observe, a token for another name counts as none", `
		A create table watched (name text); select fence.protect('watched', '{name}', 'observe');
			grant insert on watched to $some; select test.grant('unseen')  -- $t
		B set session authorization $some; begin; select fence.set_token($t); insert into watched values ('unseen');
			commit
		A select last_token from fence.fences where resource = 'unseen'  -- 0
		A select code, fencing_token from fence.reported where resource = 'unseen'  -- token_required|0`},
	{seenByRoles, `
		A create table hidden (id integer); select fence.protect('hidden', 'hidden/{id}');
			alter table hidden disable trigger fencegate_delete;
			create table shown (id integer); select fence.protect('shown', 'some/{id}')
		A select status from fence.acquire('secret', 'holder', scope => 'subtree')  -- granted
		A select fence.allow_names('$some', 'secret/1')
		B set session authorization $some;
			create function pg_temp.seen(text) returns boolean cost 0.0001 language plpgsql as
			'begin if $1 ~ ''hidden'' then raise ''it saw %'', $1; end if; return true; end';
			select string_agg(template, ' ') from fence.protected where pg_temp.seen(template)  -- some/{id}
		A create table dropped (id integer); select fence.protect('dropped', 'hidden'); drop table dropped
		A create table lost (id integer) partition by list (id); create table lost_1 partition of lost default;
			select fence.protect('lost', 'hidden'); alter table lost detach partition lost_1; select table_name
			from fence.protected where table_name = 'lost_1'  -- lost_1
		B select count(*) from fence.protected where mode is null  -- 0
		B select string_agg(fence.protection_problem(i, t, s), ' ') is null from generate_series(1, 200) i,
			unnest('{hidden,1,shown}'::regclass[]) t,
			unnest('{"hidden/{id}","hidden/{none}",hidden,"some/{id}"}'::text[]) s  -- t
		B select fence.claim_query('hidden', 1, 'a', 30000, 'true', null, '{}')  -- !42501 permission denied
		B select count(*) from fence.claim('hidden', 1, 'a')  -- !42501 permission denied
		B select status, holder, expires_at from fence.acquire('secret/1', 'owner')  -- held||
		A select holder from fence.acquire('secret/1', 'owner')  -- holder
		A select fence.disallow_names('$some', 'secret/1')
		A create table jobs (owner text, id integer); insert into jobs values ('some', 8), ('sometimes', 8);
			select fence.protect('jobs', '{owner}/{id}'); grant select, update on jobs to $some
		A select lease_id from fence.acquire('sometimes/9', 'jobber')  -- $id
		B select string_agg(resource, ' ') from fence.claim('jobs', 9, 'jobber')  -- some/8
		B select string_agg(lock, ' ') from fence.held where owner_id = 'jobber'  -- some/8
		B select fence.is_held('some/8'), fence.is_held('sometimes/9')  -- t|
		B select count(*) from fence.renew_claim('jobber', '$id')  -- 0
		A select count(*) from fence.renew_claim('jobber', '$id')  -- 1`},
	{"names of roles: who may have some, and the last of them", `
		A select fence.allow_names(current_user::regrole, 'some')  -- !55000 may use all names
		A select fence.allow_names('$some', 'a//b')  -- !22023
		A select fence.disallow_names('$some', 'x')  -- !22023
		A create role ${some}_free in role $app; grant usage on schema fence to ${some}_free;
			select fence.allow_names('${some}_free', 'some')  -- !55000 a member of one that may use all names
		A select count(*), count(prefixes) from fence.sql_roles where role_name = '${some}_free'  -- 1|0
		A select count(*) from fence.sql_roles where role_name in (current_user, 'pg_monitor')  -- 0
		A revoke $app from ${some}_free; grant $some to ${some}_free;
			select fence.allow_names('${some}_free', 'free');
			select fence.disallow_names('${some}_free', 'free')  -- !55000 the last
		A select fence.allow_names('${some}_free', 'a'); select fence.allow_names('$some', 'a');
			select fence.disallow_names('${some}_free', 'a'); select fence.disallow_names('$some', 'a')
		A select prefixes && '{some}', prefixes && '{free}', prefixes && '{a}' from fence.sql_roles
			where role_name = '${some}_free'  -- t|t|f
		A select string_agg(action || ' ' || name, '; ' order by id) from fence.audit
			where details ->> 'role' = '${some}_free'
			-- names_allowed free; names_allowed a; names_disallowed a
		A select fence.allow_names('${some}_free', ''); select count(*), count(prefixes) from fence.sql_roles
			where role_name = '${some}_free'  -- 1|0
		A select count(*) from fence.allowed_names where role_id = '${some}_free'::regrole  -- 0
		A select fence.allow_names('${some}_free', 'free')
		A begin; drop owned by ${some}_free; drop role ${some}_free;
			select count(*) from fence.allowed_names where prefix = 'free'  -- 1
		A commit; select fence.allow_names('$some', 'tenants/7'); select count(*) from fence.allowed_names where prefix = 'free'
			-- 0`},
}

// namedCalls are all ways by which a role uses a name by SQL, of the name NAME, whose segments are OWNER and ID; and the
// SQLSTATE where the role may use it and has no token. leases: they need READ COMMITTED.
var namedCalls = []struct {
	name, sql, state string
	leases           bool
}{
	{name: "guard", sql: "select fence.guard('NAME', 999, 1)", state: "LF102"},
	{name: "guard without a token", sql: "select fence.guard('NAME', null)", state: "LF101"},
	{name: "guard with a digest", sql: "select fence.guard('NAME', 999, 1, null, 'x')", state: "LF102"},
	{name: "guard with the token", sql: "select fence.guard('NAME', TOKEN, 1)"},
	{name: "try_guard", sql: "select fence.try_guard('NAME', 999)"},
	{name: "acquire", sql: "select fence.acquire('NAME', 'a')", leases: true},
	{name: "acquire of a subtree", sql: "select fence.acquire('NAME', 'a', scope => 'subtree')", leases: true},
	{name: "renew", sql: "select fence.renew('NAME', 'a', gen_random_uuid(), TOKEN)", leases: true},
	{name: "release", sql: "select fence.release('NAME', 'a', gen_random_uuid(), TOKEN)", leases: true},
	{name: "claim", sql: `select fence.claim_leases('things', '{NAME}', 'a', 30000,
		overlay(gen_random_uuid()::text placing '83' from 15)::uuid)`, leases: true},
	{name: "insert", sql: "insert into things values ('OWNER', 'ID')", state: "LF101"},
	{name: "update", sql: "update things set n = 1 where owner = 'OWNER' and id = 'ID'", state: "LF101"},
	{name: "delete", sql: "delete from things where owner = 'OWNER' and id = 'ID'", state: "LF101"},
	{name: "insert into a partition", sql: "insert into parts values ('OWNER', 'ID')", state: "LF101"},
	{name: "update with the token", sql: `select fence.set_token(TOKEN, 1);
		update things set n = 1 where owner = 'OWNER' and id = 'ID'`},
	{name: "update with a token and the resource", sql: `select fence.set_token(999, 1, 'NAME');
		update things set n = 1 where owner = 'OWNER' and id = 'ID'`, state: "LF102"},
	{name: "truncate", sql: `truncate "NAME"`, state: "LF101"},
}

// namesGuarded calls everything as the role, for a name that it may use, one that it may not, and one that it may not
// and that never existed, at each isolation level. It returns what is not as it should be, by call.
func namesGuarded(t *testing.T, conn *pgx.Conn, role string, tokens map[string]string) map[string][]string {
	t.Helper()
	problems := map[string][]string{}
	call := func(level, sql, name string) *pgconn.PgError {
		owner, id, _ := strings.Cut(name, "/")
		sql = strings.NewReplacer("NAME", name, "OWNER", owner, "ID", id, "TOKEN", tokens[name]).Replace(sql)
		_, err := conn.Exec(t.Context(), "begin isolation level "+level+"; "+sql)
		exec(t, conn, "rollback")
		if pgErr := new(pgconn.PgError); errors.As(err, &pgErr) {
			return pgErr
		} else if err != nil {
			t.Fatal(err)
		}
		return &pgconn.PgError{}
	}
	exec(t, conn, "set lock_timeout = '100ms'; set session authorization "+quote(role))
	for _, c := range namedCalls {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			allowed, foreign := c.state, insufficientPrivilege
			if c.leases && level != "read committed" {
				allowed, foreign = "25000", "25000"
			}
			for name, want := range map[string]string{"mine/1": allowed, "other/1": foreign, "other/2": foreign} {
				got := call(level, c.sql, name)
				text := got.Code
				if want == insufficientPrivilege {
					want = fmt.Sprintf("%[1]s the role %[2]s may not use the name '%[3]s' []: An administrator allows it and "+
						"all names below it: select fence.allow_names('%[2]s', '%[3]s').", want, role, name)
					text = fmt.Sprintf("%s %s [%s]: %s", got.Code, got.Message, got.Detail, got.Hint)
				}
				if text != want {
					problems[c.name] = append(problems[c.name], fmt.Sprintf("%s: %s: %q, want %q", level, name, text, want))
				}
			}
		}
	}
	return problems
}

// TestNamesOfRoles checks that a role with some names is admitted and leased only those, that an error is the same for
// another name whether it exists or not and names no token, and that it waits for nobody who has locked the fence. With
// the decision broken, each of the calls would notice.
func TestNamesOfRoles(t *testing.T) {
	t.Parallel()
	url := scripted(t, "")
	owner, conn, role := connect(t, url), connect(t, url), makeRole(t, url, "app")
	roles := migrations.Roles{App: []string{role}, AppNames: []string{"mine"}}
	if err := migrations.Grant(t.Context(), owner, roles); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, `
		create table things (owner text, id text, n integer); create table "mine/1" (); create table "other/1" ();
		create table "other/2" (); create table parts (owner text, id text) partition by list (owner);
		create table part partition of parts default;
		insert into things select o, i from unnest('{mine,other}'::text[]) o, unnest('{1,2}'::text[]) i;
		select fence.protect('things', '{owner}/{id}'); select fence.protect('parts', '{owner}/{id}');
		select fence.protect(format('%I', t), t) from unnest('{mine/1,other/1,other/2}'::text[]) t;
		grant select, insert, update, delete, truncate on all tables in schema public to `+quote(role))
	tokens := map[string]string{"other/2": "1000000"}
	for _, name := range []string{"mine/1", "other/1"} {
		tokens[name] = list(t, owner, "select test.grant('"+name+"')::text")[0]
	}
	exec(t, owner, "begin; select fence.guard('other/1', "+tokens["other/1"]+", 1)")
	for name, problems := range namesGuarded(t, conn, role, tokens) {
		t.Errorf("%s: %s", name, strings.Join(problems, "\n"))
	}
	exec(t, owner, "rollback")

	source, _ := migrations.GuardSource("is_allowed")
	exec(t, owner, strings.Replace(source, "\nbegin\n", "\nbegin return true;\n", 1))
	broken := namesGuarded(t, connect(t, url), role, tokens)
	for _, c := range namedCalls {
		if broken[c.name] == nil {
			t.Errorf("%s: without the check, all is as it should be", c.name)
		}
	}
}

// TestNotificationsNameNothing checks that every NOTIFY has no payload, or is of a function whose payload stands for a
// name without showing it.
func TestNotificationsNameNothing(t *testing.T) {
	for _, name := range migrations.Functions() {
		source, _ := migrations.GuardSource(name)
		for _, call := range regexp.MustCompile(`pg_notify\(.*`).FindAllString(source, -1) {
			if strings.HasSuffix(call, ", '');") || name == "note_change" || name == "wake_gateway" {
				continue
			}
			t.Errorf("fence.%s: %s has a payload", name, call)
		}
	}
}

// noForgedCounts is the name of a script for mutations.
const noForgedCounts = "settings of a client neither hide rejections nor record more of them"

// settingsScripts are about transactions whose settings have the token: the triggers of a protected table guard them.
var settingsScripts = []script{
	{"a token in the settings of the transaction", `
		A create table orm (id integer primary key, n integer); insert into orm values (1, 1), (2, 2);
			select fence.protect('orm', 'orm/{id}'); select test.grant('orm/1')  -- $t
		A begin; select fence.set_token($t, 2); update orm set n = 2 where id = 1;
			update orm set n = 3 where id = 1; select last_sequence from fence.admitted  -- 2
		A update orm set n = 2  -- !LF102 orm/2
		A rollback; begin; select fence.set_token($t, null, 'orm/1');
			update orm set n = 3 where id = 2  -- !LF101 fencegate.resource is 'orm/1', so fencegate.token does not
		A rollback; begin; select fence.set_token($t, null, 'orm/1');
			update orm set n = 3 where id = 1; commit
		A begin; select fence.set_token($t); update orm set n = 4 where id = 1  -- !LF103 reused
		A rollback; begin; select fence.set_token($t, 1); update orm set n = 4 where id = 1; commit
		A begin; select fence.set_token($t, 1); update orm set n = 4 where id = 1  -- !LF106
		A rollback; begin; select fence.set_token($t, 3, null, '00000000-0000-0000-0000-000000000000');
			update orm set n = 4 where id = 1  -- !LF104
		A rollback; begin; select fence.set_token($t, 3); select fence.set_token(null, 3); update orm set n = 4  -- !LF101
		A rollback; select test.grant('orm/1'); begin; select fence.set_token($t, 3);
			update orm set n = 4 where id = 1  -- !LF103 superseded
		A rollback; select fence.set_token($t, 3); update orm set n = 4 where id = 1  -- !LF101
		A set fencegate.token = 'x'; update orm set n = 4 where id = 1  -- !22023 fencegate.token
		A set fencegate.token = '1.2.3'; update orm set n = 4 where id = 1  -- !22023 fencegate.token
		A set fencegate.token = '0'; update orm set n = 4 where id = 1  -- !22023 positive
		A set fencegate.token = '9999999999999999'; update orm set n = 4 where id = 1  -- !22023 2^53
		A set fencegate.token = '1'; set fencegate.lease_id = 'x';
			update orm set n = 4 where id = 1  -- !22023 fencegate.lease_id is not a UUID`},
	{"a token in the settings admits to the resources of the rows alone", `
		A create table siblings (id integer primary key, n integer); insert into siblings values (1, 1), (2, 2);
			select fence.protect('siblings', 'siblings/{id}'); select test.grant('siblings', 'exclusive', 'subtree')  -- $t
		A select fence.guard('siblings/1', $t, 1); select fence.guard('siblings/2', $t, 1)
		A begin; select fence.set_token($t, 2); update siblings set n = 3 where id = 1;
			select string_agg(resource, ' ') from fence.admitted  -- siblings/1`},
	{"a setting that outlives its transaction counts for no other", `
		A create table lent (id integer primary key, n integer); insert into lent values (1, 1), (2, 2);
			select fence.protect('lent', 'lent/{id}'); select test.grant('lent/1')  -- $t
		A set fencegate.token = '$t.1'; update lent set n = 666 where id = 1
			-- !22023 fencegate.token was not set for this transaction: call fence.set_token first in it
		A begin; set local fencegate.token = '$t.1'; update lent set n = 666 where id = 1  -- !22023 fence.set_token
		A rollback; begin; select fence.set_token($t, 1); select set_config('fencegate.token',
			current_setting('fencegate.token'), false); update lent set n = 2 where id = 1; commit
		A update lent set n = 666 where id = 1  -- !22023 fence.set_token
		A begin; select fence.set_token($t, 2); savepoint s; select fence.set_token($t, 3); rollback to s;
			update lent set n = 3 where id = 1; select last_sequence from fence.admitted  -- 2
		A commit; select fence.protect('lent', 'lent/{id}', 'observe'); update lent set n = 4 where id = 1
		A select code, fencing_token from fence.reported where table_name = 'public.lent'  -- token_required|0`},
	{"a zombie is rejected without a wait while the holder's transaction is open", `
		A create table honest (id integer primary key, n integer); insert into honest values (1, 1);
			select fence.protect('honest', 'honest/{id}'); select test.grant('honest/1')  -- $old
		C begin isolation level repeatable read; select fence.set_token($old, 1); select 1
		A select test.grant('honest/1')  -- $t
		A begin; select fence.guard('honest/1', $t, 1)
		B set lock_timeout = '2s'; begin; select fence.set_token($old, 1); update honest set n = 666 where id = 1  -- !LF103
		C update honest set n = 666 where id = 1  -- !40001
		C rollback; begin isolation level repeatable read; select fence.set_token($old, 1);
			update honest set n = 666 where id = 1  -- !LF103
		D begin isolation level serializable; select fence.set_token($old, 1);
			update honest set n = 666 where id = 1  -- !LF103
		E begin; select fence.set_token(999999); update honest set n = 666 where id = 1  -- !LF102
		A update honest set n = 2 where id = 1; commit; select n from honest  -- 2`},
	{"the fence is locked before the rows where the resource is known before them", `
		A create table known (id integer primary key, n integer); insert into known values (1, 1), (2, 2);
			create table single (like known including all); insert into single select * from known;
			select fence.protect('known', 'known/{n}'); select fence.protect('single', 'single')
		A select test.grant('known/1')  -- $t
		A begin; select fence.guard('known/1', $t, 1)
		B begin; select fence.set_token($t, 2, 'known/1');
			update known set id = 3 where id = 1  -- waits
		A update known set id = 1 where id = 1; commit
		B ...
		B update known set id = 1 where id = 3; update known set n = 1 where false; commit
		A select test.grant('single')  -- $u
		A begin; select fence.set_token($u, 1); update single set n = 5 where id = 1
		B begin; select fence.set_token($u, 2); update single set n = 6 where id = 2  -- waits
		A update single set n = 5 where id = 2; commit
		B ...
		B commit; select n from single where id = 2  -- 6`},
	{"the settings do not count for a resource that is admitted already", `
		A create table admitted (id integer primary key, n integer); insert into admitted values (1, 1);
			select fence.protect('admitted', 'admitted/{id}'); select test.grant('admitted/1')  -- $t
		A begin; select fence.set_token($t, 7, 'admitted/1');
			select fence.guard('admitted/1', $t, 2); update admitted set n = 2; select last_sequence from fence.admitted  -- 2`},
	{noForgedCounts, `
		A create table forged_counts (id integer); select fence.protect('forged_counts', 'forged/{id}', 'observe')
		A select fence.try_guard('forged/1', 999999); select pg_sequence_last_value('fence.rejected_by_sql_token_unknown')
			-- $before
		A set fencegate.counted = 'on'; select fence.try_guard('forged/1', 999999);
			select pg_sequence_last_value('fence.rejected_by_sql_token_unknown') > $before  -- t
		A begin; select set_config('fencegate.reports', 'forged_counts'::regclass::oid || ' 100', true);
			insert into forged_counts values (1); commit;
			select count(*) from fence.reported where table_name = 'public.forged_counts'  -- 1
		A begin; insert into forged_counts select generate_series(1, 60); set local fencegate.reports = '';
			insert into forged_counts select generate_series(1, 60); commit;
			select count(*) from fence.reported where table_name = 'public.forged_counts'  -- 101
		B begin; select count(fence.try_guard('forged/1', 999998)) from generate_series(1, 101); commit;
			select count(*) from fence.reported where resource = 'forged/1' and fencing_token = 999998  -- 100`},
	{"P3 through the trigger: a zombie that waits behind a grant", `
		A create table zombies (id integer primary key, n integer); insert into zombies values (1, 1);
			select fence.protect('zombies', 'zombies/{id}'); select test.grant('zombies/1')  -- $t
		B begin; select test.grant('zombies/1')  -- $new
		A begin; select fence.set_token($t, 1); update zombies set n = 666  -- waits
		B commit
		A ...  -- !LF103 "resource":"zombies/1","table":"public.zombies"
		A rollback; begin; select fence.set_token($new, 1); update zombies set n = 2
		B select test.grant('zombies/1')  -- waits
		A commit
		B ...
		A select n from zombies  -- 2`},
}
