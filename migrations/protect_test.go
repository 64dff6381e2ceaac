package migrations_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencegate/fencegate/migrations"
)

// protectScripts are about tables with fence.protect. $app is a role with the right to read and write all tables that
// may call fence.guard; $owner may create tables, and protect its own.
var protectScripts = []script{
	{"insert, update, delete", `
		A create table plain (id integer primary key, n integer); insert into plain values (1, 1), (2, 2), (3, 3)
		A select fence.protect('plain', 'plain/{id}')
		A select template, mode, problem is null from fence.protected where table_name = 'plain'::regclass  -- plain/{id}|enforce|t
		A select test.grant('plain/1')  -- $t
		A insert into plain values (4, 4)  -- !LF101 {"code":"token_required","resource":"plain/4","table":"public.plain","granted_token":0
		A update plain set n = 0 where id = 1  -- !LF101 "resource":"plain/1","table":"public.plain","granted_token":$t
		A delete from plain where id = 1  -- !LF101 "resource":"plain/1"
		A update plain set n = 0 where false; delete from plain where false; insert into plain select 5, 5 where false
		A begin; select fence.guard('plain/1', $t, 1); update plain set n = 10 where id = 1; savepoint s
		A update plain set n = 10  -- !LF101 "resource":"plain/2"
		A rollback to s; delete from plain where id in (1, 3)  -- !LF101 "resource":"plain/3"
		A rollback to s; insert into plain values (4, 4)  -- !LF101 "resource":"plain/4"
		A rollback to s; delete from plain where id = 1; insert into plain values (1, 11); commit
		A select string_agg(id || ':' || n, ' ' order by id) from plain  -- 1:11 2:2 3:3
		A update plain set n = 0 where id = 1  -- !LF101
		A begin; select fence.guard('plain/1', $t, 2); select test.grant('plain/2')  -- $u
		A select fence.guard('plain/2', $u); update plain set n = n + 1 where id < 3; commit`},
	{"an update that moves a row needs both resources", `
		A create table moved (id integer primary key); insert into moved values (1); select fence.protect('moved', 'moved/{id}')
		A select test.grant('moved/1')  -- $t
		A select test.grant('moved/2')  -- $u
		A begin; select fence.guard('moved/1', $t, 1); update moved set id = 2  -- !LF101 "resource":"moved/2"
		A rollback; begin; select fence.guard('moved/2', $u, 1); update moved set id = 2  -- !LF101 "resource":"moved/1"
		A rollback; begin; select fence.guard('moved/2', $u, 1); select fence.guard('moved/1', $t, 1); update moved set id = 2; commit`},
	{"upsert, both arms, and merge", `
		A create table upserted (id integer primary key, n integer); insert into upserted values (1, 1); select fence.protect('upserted', 'upserted/{id}')
		A select test.grant('upserted/1')  -- $t
		A select test.grant('upserted/2')  -- $u
		A insert into upserted values (1, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/1
		A insert into upserted values (1, 2) on conflict do nothing
		A begin; select fence.guard('upserted/2', $u, 1); insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/1
		A rollback; begin; select fence.guard('upserted/1', $t, 1); insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/2
		A rollback; begin; select fence.guard('upserted/1', $t, 1); insert into upserted values (1, 2) on conflict (id) do update set id = 2  -- !LF101 upserted/2
		A rollback; begin; select fence.guard('upserted/1', $t, 1); select fence.guard('upserted/2', $u, 1); insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2; commit
		A merge into upserted u using (values (1), (3)) v (id) on u.id = v.id when matched then delete when not matched then insert values (v.id, 0)  -- !LF101
		A begin; select fence.guard('upserted/1', $t, 2); merge into upserted u using (values (1), (3)) v (id) on u.id = v.id when matched then delete when not matched then insert values (v.id, 0)  -- !LF101 upserted/3
		A rollback; begin; select fence.guard('upserted/1', $t, 2); merge into upserted u using (values (1), (3)) v (id) on u.id = v.id when matched then update set n = 9; commit`},
	{"copy, writable CTEs, cursors", `
		A create table copied (id integer primary key, n integer); insert into copied values (1, 1); select fence.protect('copied', 'copied/{id}'); create table archive (id integer, n integer)
		A select test.grant('copied/1')  -- $t
		A copy copied 2,2  -- !LF101 copied/2
		A with gone as (delete from copied returning *) insert into archive select * from gone  -- !LF101 copied/1
		A begin; declare c cursor for select * from copied for update; fetch c; update copied set n = 2 where current of c  -- !LF101 copied/1
		A rollback; with admitted as materialized (select fence.guard('copied/1', $t, 1)) update copied set n = 2 from admitted where id = 1
		A begin; select fence.guard('copied/1', $t, 2); with gone as (delete from copied returning *) insert into archive select * from gone
		A copy copied 1,3
		A copy copied 2,3  -- !LF101 copied/2
		A rollback`},
	{"by a view, a rule, a function of another owner", `
		A create table seen (id integer primary key, n integer); insert into seen values (1, 1); select fence.protect('seen', 'seen/{id}')
		A create view seen_view as select * from seen; create table seen_beside (id integer); create rule beside as on insert to seen_beside do also insert into seen values (new.id, 0)
		A create function seen_function() returns void language sql security definer as 'update seen set n = n + 1'; grant all on all tables in schema public to $app
		A set role $app; update seen_view set n = 2  -- !LF101 seen/1
		A insert into seen_beside values (7)  -- !LF101 seen/7
		A select seen_function()  -- !LF101 seen/1
		A reset role; select test.grant('seen/1')  -- $t
		A set role $app; begin; select fence.guard('seen/1', $t, 1); update seen_view set n = 2; select seen_function(); commit`},
	{"foreign keys that cascade", `
		A create table parents (id integer primary key); insert into parents values (1), (2)
		A create table children (id integer primary key, parent integer references parents on delete cascade on update cascade); insert into children values (10, 1), (11, 1), (12, 2)
		A create table kept (id integer primary key, parent integer references parents on delete set null); insert into kept values (20, 2)
		A select fence.protect('children', 'children/of/{parent}'); select fence.protect('kept', 'kept/{id}')
		A delete from parents where id = 1  -- !LF101 children/of/1
		A update parents set id = 3 where id = 1  -- !LF101 children/of/1
		A select test.grant('children/of/1')  -- $t
		A begin; select fence.guard('children/of/1', $t, 1); savepoint s; update parents set id = 3 where id = 1  -- !LF101 children/of/3
		A rollback to s; delete from parents  -- !LF101
		A rollback to s; delete from parents where id = 1; commit
		A select test.grant('children/of/2')  -- $u
		A begin; select fence.guard('children/of/2', $u, 1); delete from parents where id = 2  -- !LF101 kept/20
		A rollback; select test.grant('kept/20')  -- $v
		A begin; select fence.guard('children/of/2', $u, 1); select fence.guard('kept/20', $v, 1); delete from parents where id = 2; commit
		A select (select count(*) from children), parent is null from kept  -- 0|t`},
	{"deferred constraint triggers, and triggers of the user", `
		A create table late (id integer primary key, n integer); insert into late values (1, 1); select fence.protect('late', 'late/{id}'); create table causes (id integer)
		A create function late_write() returns trigger language plpgsql as 'begin update late set n = n + 1 where id = new.id; return null; end'; create constraint trigger late_write after insert on causes deferrable initially deferred for each row execute function late_write()
		A select test.grant('late/1')  -- $t
		A begin; insert into causes values (1); commit  -- !LF101 late/1
		A begin; insert into causes values (1); select fence.guard('late/1', $t, 1); commit
		A begin; savepoint s; select fence.guard('late/1', $t, 2); insert into causes values (1); rollback to s; insert into causes values (1); commit  -- !LF101 late/1
		A create function stamp() returns trigger language plpgsql as 'begin new.id := 5; return new; end'; create trigger stamp before insert or update on late for each row execute function stamp()
		A begin; select fence.guard('late/1', $t, 2); update late set n = 7 where id = 1  -- !LF101 late/5`},
	{"a generated column", `
		A create table generated (id integer, at date, day text generated always as ('d' || (at - date '2000-01-01')) stored); insert into generated values (1, '2000-01-03'); select fence.protect('generated', 'days/{day}')
		A insert into generated values (2, '2000-01-04')  -- !LF101 days/d3
		A select test.grant('days/d2')  -- $t
		A begin; select fence.guard('days/d2', $t, 1); update generated set id = 5; savepoint s; update generated set at = '2000-01-05'  -- !LF101 days/d4
		A rollback to s; commit; select fence.protect('generated', 'days/{at}')  -- !42804 generated column
		A select template from fence.protected where table_name = 'generated'::regclass  -- days/{day}`},
	{"partitions", `
		A create table parted (id integer, n integer) partition by range (id); create table parted_1 partition of parted for values from (0) to (10)
		A create table parted_2 partition of parted for values from (10) to (20) partition by list (n); create table parted_2a partition of parted_2 for values in (0, 1, 2); insert into parted values (1, 1), (11, 1)
		A select fence.protect('parted', 'parted/{id}'); select problem is null from fence.protected where table_name = 'parted'::regclass  -- t
		A update parted set n = 2 where id = 1  -- !LF101 "resource":"parted/1","table":"public.parted"
		A update parted_1 set n = 2  -- !LF101 "resource":"parted/1","table":"public.parted"
		A delete from parted_2a  -- !LF101 "resource":"parted/11","table":"public.parted"
		A insert into parted_2 values (12, 1)  -- !LF101 parted/12
		A copy parted_2a 13,1  -- !LF101 parted/13
		A select test.grant('parted/1')  -- $t
		A begin; select fence.guard('parted/1', $t, 1); update parted set n = 3 where id = 1; update parted_1 set n = 2; savepoint s; update parted set id = 12 where id = 1  -- !LF101 parted/12
		A rollback to s; update parted set id = 1 where id = 11  -- !LF101 parted/11
		A rollback to s; commit; select test.grant('parted/2')  -- $v
		A begin; select fence.guard('parted/2', $v, 1); update parted set id = 2 where id = 1  -- !LF101 parted/1
		A rollback; select test.grant('parted/12')  -- $u
		A begin; select fence.guard('parted/1', $t, 2); select fence.guard('parted/12', $u, 1); update parted set id = 12 where id = 1; commit
		A truncate parted  -- !LF107 "code":"truncate"
		A truncate parted_1  -- !LF107 parted
		A truncate parted_2a  -- !LF107
		A create table parted_3 (id integer, n integer); insert into parted_3 values (21, 1); alter table parted attach partition parted_3 for values from (20) to (30)
		A update parted_3 set n = 2  -- !LF101 "resource":"parted/21","table":"public.parted"
		A select problem from fence.protected where table_name = 'parted'::regclass  -- trigger fencegate_truncate on public.parted_3 is missing
		A select fence.protect('parted', 'parted/{id}'); truncate parted_3  -- !LF107
		A create table parted_4 partition of parted for values from (30) to (40); insert into parted_4 values (31, 1)  -- !LF101 parted/31
		A select fence.protect('parted', 'parted/{id}'); alter table parted_1 disable trigger fencegate_row; select problem from fence.protected where table_name = 'parted'::regclass  -- trigger fencegate_row on public.parted_1 does not always fire
		A select fence.protect('parted', 'parted/{id}'); select problem is null from fence.protected where table_name = 'parted'::regclass  -- t
		A alter table parted detach partition parted_3; update parted_3 set n = 5
		A truncate parted_3  -- !55000 not protected
		A select fence.protect('parted_1', 'parted/{id}')  -- !42809 partition
		A select fence.unprotect('parted_3'); truncate parted_3; select fence.unprotect('parted'); truncate parted; select count(*) from pg_trigger where tgname like 'fencegate%' and tgrelid::regclass::text like 'parted%'  -- 0`},
	{"truncate", `
		A create table truncated (id integer primary key); create table referring (id integer references truncated); select fence.protect('referring', 'referring/{id}'); select fence.protect('truncated', 'truncated')
		A truncate truncated, referring  -- !LF101 truncated
		A truncate truncated cascade  -- !LF101 truncated
		A select fence.unprotect('referring'); truncate truncated, referring  -- !LF101 truncated
		A select test.grant('truncated')  -- $t
		A begin; select fence.guard('truncated', $t); truncate truncated cascade; insert into truncated values (1), (2); commit
		A select fence.protect('referring', 'referring/{id}', 'observe'); begin; select fence.guard('truncated', $t + 0, null, null, null)  -- !LF106
		A rollback; select test.grant('truncated')  -- $t2
		A begin; select fence.guard('truncated', $t2); truncate truncated cascade; commit
		A select count(*), min(table_name) from fence.reported where code = 'truncate' and resource = 'referring/{id}'  -- 1|public.referring`},
	{"a template of the table alone, of several columns, of one column twice", `
		A create table alone (id integer, n integer); select fence.protect('alone', 'alone/all'); insert into alone values (1, 1)  -- !LF101 alone/all
		A select test.grant('alone/all')  -- $t
		A begin; select fence.guard('alone/all', $t); insert into alone select g, g from generate_series(1, 100) g; update alone set n = 0; delete from alone where id > 1; commit
		A update alone set n = 2  -- !LF101 "table":"public.alone","granted_token":$t
		A create table orders (tenant text, id bigint, unit uuid); select fence.protect('orders', 'tenants/{tenant}/orders/{id}/{unit}/{id}')
		A insert into orders values ('a/b', 9223372036854775807, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11')  -- !LF101 "resource":"tenants/a%2Fb/orders/9223372036854775807/a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11/9223372036854775807"
		A insert into orders values (null, null, null)  -- !LF101 "resource":"tenants/%null/orders/%null/%null/%null"`},
	{"columns that were renamed, given another type, or dropped", `
		A create table changed (id integer, name text, unit uuid, n integer); insert into changed values (1, 'a', null, 0); select fence.protect('changed', 'changed/{id}/{name}/{unit}'); select test.grant('changed/1/a/%null')  -- $t
		A begin; select fence.guard('changed/1/a/%null', $t); update changed set n = 1; savepoint s; alter table changed alter id type bigint; update changed set n = 1; savepoint s
		A alter table changed alter id type numeric; update changed set n = 1  -- !55000 another type
		A rollback to s; alter table changed alter id type text; update changed set n = 1  -- !55000
		A rollback to s; alter table changed alter id type date using date '2000-01-01'; update changed set n = 1  -- !55000
		A rollback to s; alter table changed alter name type date using date '2000-01-01'; update changed set n = 1  -- !42804
		A rollback to s; alter table changed alter unit type text using 'x'; update changed set n = 1  -- !55000
		A rollback to s; alter table changed rename id to other; update changed set n = 1  -- !42703
		A rollback to s; alter table changed drop column name; update changed set n = 1  -- !42703
		A rollback; alter table changed rename id to other; select problem from fence.protected where table_name = 'changed'::regclass  -- the table public.changed has no column 'id'
		A alter table changed rename other to id; alter table changed alter id type date using null; select problem from fence.protected where table_name = 'changed'::regclass  -- the column 'id' of public.changed cannot be part of a resource
		A alter table changed alter id type text using null; select problem from fence.protected where table_name = 'changed'::regclass  -- the trigger functions are not those of the template any more: call fence.protect again
		A select fence.protect('changed', 'changed/{id}'); select problem is null from fence.protected where table_name = 'changed'::regclass  -- t
		A insert into changed values ('x')  -- !LF101 changed/x`},
	{"a change of the template and the mode, and the end of the protection", `
		A create table twice (id integer); select fence.protect('twice', 'twice/{id}'); select fence.protect('twice', 'other/{id}', 'observe'); insert into twice values (1), (2)
		A select string_agg(concat_ws(' ', resource, table_name, code, fencing_token), ', ' order by resource) from fence.reported where table_name = 'public.twice'  -- other/1 public.twice token_required 0, other/2 public.twice token_required 0
		A begin; insert into twice values (3); rollback; select count(*) from fence.reported where resource = 'other/3'  -- 0
		A insert into twice select generate_series(1000, 1500); select count(*) from fence.reported where table_name = 'public.twice'  -- 102
		A select fence.protect('twice', 'twice/{id}'); insert into twice values (3)  -- !LF101 twice/3
		A select count(*), max(mode) from fence.protected where table_name = 'twice'::regclass  -- 1|enforce
		A select fence.unprotect('twice'); insert into twice values (3); select fence.unprotect('twice'); select count(*) from pg_proc where pronamespace = 'fence'::regnamespace and proname ~ ('check_[0-9]+_') and prosrc like '%twice/%'  -- 0
		A select count(*) from fence.protected where table_name = 'twice'::regclass  -- 0
		A select fence.protect('twice', 'twice/{id}'); select 'twice'::regclass::oid  -- $oid
		A drop table twice; select problem from fence.protected where table_name::oid = $oid  -- there is no such table
		A create table thrice (id integer); select fence.protect('thrice', 'thrice'); select count(*) from fence.protected where table_name::oid = $oid  -- 0`},
	{"observe, with a token", `
		A create table observed (id integer); select fence.protect('observed', 'observed', 'observe'); select test.grant('observed')  -- $old
		A select test.grant('observed')  -- $new
		A begin; set local fencegate.token = '$old.5'; insert into observed values (1); commit
		A begin; set local fencegate.token = '$new.1'; insert into observed values (2); insert into observed values (3); commit
		A select string_agg(concat_ws(' ', code, reason, fencing_token, sequence, granted_token), ', ') from fence.reported where resource = 'observed'  -- token_stale superseded $old 5 $new
		A select last_token, last_sequence from fence.fences where resource = 'observed'  -- $new|1`},
	{"a token in the settings of the transaction", `
		A create table orm (id integer primary key, n integer); insert into orm values (1, 1), (2, 2); select fence.protect('orm', 'orm/{id}'); select test.grant('orm/1')  -- $t
		A begin; set local fencegate.token = '$t.2'; update orm set n = 2 where id = 1; update orm set n = 3 where id = 1; select last_sequence from fence.admitted  -- 2
		A update orm set n = 2  -- !LF102 orm/2
		A rollback; begin; set local fencegate.token = '$t'; set local fencegate.resource = 'orm/1'; update orm set n = 3 where id = 2  -- !LF101 orm/2
		A rollback; begin; set local fencegate.token = '$t'; set local fencegate.resource = 'orm/1'; update orm set n = 3 where id = 1; commit
		A set fencegate.token = '$t'; update orm set n = 4 where id = 1  -- !LF106
		A set fencegate.token = '$t.1'; update orm set n = 4 where id = 1; update orm set n = 4 where id = 1  -- !LF106
		A set fencegate.token = '$t.3'; set fencegate.lease_id = '00000000-0000-0000-0000-000000000000'; update orm set n = 4 where id = 1  -- !LF104
		A set fencegate.lease_id = ''; select test.grant('orm/1'); update orm set n = 4 where id = 1  -- !LF103 superseded
		A set fencegate.token = ''; update orm set n = 4 where id = 1  -- !LF101
		A set fencegate.token = 'x'; update orm set n = 4 where id = 1  -- !22023 fencegate.token
		A set fencegate.token = '1.2.3'; update orm set n = 4 where id = 1  -- !22023 fencegate.token
		A set fencegate.token = '0'; update orm set n = 4 where id = 1  -- !22023 positive
		A set fencegate.token = '9999999999999999'; update orm set n = 4 where id = 1  -- !22023 2^53
		A set fencegate.token = '1'; set fencegate.lease_id = 'x'; update orm set n = 4 where id = 1  -- !22P02 uuid`},
	{"P3 through the trigger: a zombie that waits behind a grant", `
		A create table zombies (id integer primary key, n integer); insert into zombies values (1, 1); select fence.protect('zombies', 'zombies/{id}'); select test.grant('zombies/1')  -- $t
		B begin; select test.grant('zombies/1')  -- $new
		A begin; set local fencegate.token = '$t.1'; update zombies set n = 666  -- waits
		B commit
		A ...  -- !LF103 "resource":"zombies/1","table":"public.zombies"
		A rollback; begin; set local fencegate.token = '$new.1'; update zombies set n = 2
		B select test.grant('zombies/1')  -- waits
		A commit
		B ...
		A select n from zombies  -- 2`},
	{"names with quotes, signs and capitals", `
		A create table "T ""x"" %s %I $body$ {1}; --" ("$body$; select 1; --" integer, "a""b%I" text, "Übergrößenträgerxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" integer, "v_missing" integer, "r" integer, "found" integer, "new" integer, "tg_op" integer, "resource" integer, "w" integer)
		A select fence.protect('"T ""x"" %s %I $body$ {1}; --"', 'q''$body$ %s/{$body$; select 1; --}/{a"b%I}/{Übergrößenträgerxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}/{v_missing}/{r}/{found}/{new}/{tg_op}/{resource}/{w}')
		A insert into "T ""x"" %s %I $body$ {1}; --" values (1, '%s', 3, 4, 5, 6, 7, 8, 9, 10)  -- !LF101 "resource":"q'$body$ %s/1/%25s/3/4/5/6/7/8/9/10","table":"public.T \"x\" %s %I $body$ {1}; --"
		A select test.grant('q''$body$ %s/1/%25s/3/4/5/6/7/8/9/10')  -- $t
		A begin; select fence.guard('q''$body$ %s/1/%25s/3/4/5/6/7/8/9/10', $t); insert into "T ""x"" %s %I $body$ {1}; --" values (1, '%s', 3, 4, 5, 6, 7, 8, 9, 10); update "T ""x"" %s %I $body$ {1}; --" set r = 5; set session_replication_role = replica; update "T ""x"" %s %I $body$ {1}; --" set r = 5; delete from "T ""x"" %s %I $body$ {1}; --"; commit
		A select problem is null from fence.protected where template like 'q''%'  -- t
		A create schema "S.a"; create table "S.a"."t.b" ("Id" integer) partition by list ("Id"); create table "S.a"."p.c" partition of "S.a"."t.b" default; select fence.protect('"S.a"."t.b"', 'S/{Id}'); select fence.protect('"S.a"."t.b"', 'S/{id}')  -- !42703 'id'
		A insert into "S.a"."p.c" values (1)  -- !LF101 "resource":"S/1","table":"S.a.t.b"
		A select problem is null from fence.protected where template = 'S/{Id}'  -- t
		A select fence.unprotect('"S.a"."t.b"'); select fence.unprotect('"T ""x"" %s %I $body$ {1}; --"'); insert into "S.a"."p.c" values (1)`},
	{"templates and tables that are refused", `
		A create table refused (id integer, n numeric, c char(3), at timestamptz); create view refused_view as select * from refused; create temp table refused_temp (id integer)
		A select fence.protect('refused', 'a//b')  -- !22023 path
		A select fence.protect('refused', 'a/x{id}')  -- !22023 segment
		A select fence.protect('refused', 'a/{id}{id}')  -- !22023 segment
		A select fence.protect('refused', 'a/{}')  -- !22023 segment
		A select fence.protect('refused', 'a/{id')  -- !22023 segment
		A select fence.protect('refused', null)  -- !22023 path
		A select fence.protect('refused', 'a/{id}', 'watch')  -- !22023 mode
		A select fence.protect('refused', 'a/{id}', null)  -- !22023 mode
		A select fence.protect('refused', 'a/{none}')  -- !42703 none
		A select fence.protect('refused', 'a/{ctid}')  -- !42703 ctid
		A select fence.protect('refused', 'a/{n}')  -- !42804
		A select fence.protect('refused', 'a/{c}')  -- !42804
		A select fence.protect('refused', 'a/{at}')  -- !42804
		A select fence.protect('refused_view', 'a/{id}')  -- !42809
		A select fence.protect('refused_temp', 'a/{id}')  -- !42809
		A select fence.protect('fence.fences', 'a/{resource}')  -- !42809
		A select fence.protect(null, 'a/{id}')  -- !42809
		A select fence.protect(1::oid::regclass, 'a/{id}')  -- !42809
		A select count(*) from fence.protected where template like 'a/%'  -- 0
		A create table inheriting () inherits (refused); select fence.protect('refused', 'a/{id}')  -- !42809 inherit
		A select fence.protect('inheriting', 'a/{id}')  -- !42809 inherit`},
	{"a protected table that gets children, or becomes a partition", `
		A create table alone_2 (id integer); select fence.protect('alone_2', 'alone/{id}'); create table heir () inherits (alone_2); select problem from fence.protected where table_name = 'alone_2'::regclass  -- public.alone_2 inherits, or is inherited from: statements on the other table would not be checked
		A create table joined (id integer); select fence.protect('joined', 'joined/{id}'); create table joining (id integer) partition by list (id); alter table joining attach partition joined default; select problem from fence.protected where table_name = 'joined'::regclass  -- public.joined is a partition: protect public.joining`},
	{"collations that take different texts for the same", `
		A create collation blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create table blind (name text collate blind, other text collate "C", n integer); insert into blind values ('Bob', 'x', 0)
		A select fence.protect('blind', 'blind/{name}/{other}'); select test.grant('blind/bob/x')  -- $t
		A begin; select fence.guard('blind/bob/x', $t, 1); update blind set name = 'bob'  -- !LF101 blind/Bob/x
		A rollback; begin; select fence.guard('blind/bob/x', $t, 1); insert into blind values ('bob', 'x', 1), ('BOB', 'x', 2)  -- !LF101 blind/BOB/x
		A rollback; begin; select fence.guard('blind/bob/x', $t, 1); insert into blind values ('bob', 'x', 1); commit
		A create table blind_parts (name text collate blind, n integer) partition by list (n); create table blind_part partition of blind_parts default; insert into blind_parts values ('Bob', 0); select fence.protect('blind_parts', 'parts/{name}'); select test.grant('parts/bob')  -- $u
		A begin; select fence.guard('parts/bob', $u, 1); update blind_parts set name = 'bob'  -- !LF101 parts/Bob`},
	{"replicated rows: session_replication_role = replica", `
		A create table replicated (id integer primary key, n integer); insert into replicated values (1, 1); select fence.protect('replicated', 'replicated/{id}')
		A set session_replication_role = replica; update replicated set n = 2  -- !LF101 replicated/1
		A insert into replicated values (2, 2)  -- !LF101 replicated/2
		A delete from replicated  -- !LF101
		A truncate replicated  -- !LF107
		A select test.grant('replicated/1')  -- $t
		A begin; select fence.guard('replicated/1', $t, 1); update replicated set n = 2; update replicated set id = 2  -- !LF101 replicated/2`},
}

// attackScripts are attempts to write without an admission.
var attackScripts = []script{
	{"forged settings", `
		A create table forged (id integer primary key, n integer); insert into forged values (1, 1); select fence.protect('forged', 'forged/{id}'); grant select, insert, update, delete, truncate on forged to $app; select test.grant('forged/1')  -- $t
		A set session authorization $app; set session_replication_role = replica  -- !42501
		A set fencegate.admitted = 'forged/1'; set fencegate.resource = 'forged/1'; update forged set n = 2  -- !LF101
		A set fencegate.token = '9007199254740991'; update forged set n = 2  -- !LF102
		A set transform_null_equals = on; set standard_conforming_strings = off; set array_nulls = off; set enable_indexscan = off; set plan_cache_mode = force_generic_plan; set fencegate.token = ''; update forged set n = 2  -- !LF101
		A alter table forged disable trigger fencegate_update  -- !42501
		A drop trigger fencegate_update on forged  -- !42501
		A truncate forged  -- !LF107
		A select fence.protect('forged', 'x/{id}', 'observe')  -- !42501
		A select fence.unprotect('forged')  -- !42501
		A update fence.fences set admitted_in = pg_current_xact_id()  -- !42501
		A select * from fence.fences  -- !42501
		A select fence.check_rows('forged'::regclass, '{}')  -- !42501
		A update forged set n = 2  -- !LF101`},
	{"shadowed operators, functions, tables and types", `
		A create table shadowed (id integer primary key, n text); insert into shadowed values (1, 'a'); select fence.protect('shadowed', 'shadowed/{id}/{n}'); grant select, insert, update, delete on shadowed to $app; create schema shadow authorization $app
		A set session authorization $app; create function shadow.same(text, text) returns boolean language sql as 'select true'; create operator shadow.= (leftarg = text, rightarg = text, function = shadow.same); create operator shadow.<> (leftarg = text[], rightarg = text[], function = shadow.none)  -- !42883
		A create function shadow.pg_current_xact_id() returns xid8 language sql as 'select null::xid8'; create function shadow.age(xid) returns integer language sql as 'select 0'; create function shadow.array_length(text[]) returns integer language sql as 'select 0'
		A create temp table fencegate_new (id integer, n text); create temp table fencegate_old (id integer, n text); create temp table admitted (resource text); insert into admitted values ('shadowed/1/a'); create temp table fences as select 'shadowed/1/a' as resource
		A create type pg_temp.text as (x integer); create function pg_temp.pg_partition_root(oid) returns oid language sql as 'select null::oid'
		A set search_path = pg_temp, shadow, pg_catalog, public; update shadowed set n = 'b/'  -- !LF101 shadowed/1/
		A insert into shadowed values (2, 'b')  -- !LF101 shadowed/2/b
		A delete from shadowed  -- !LF101
		A select verdict from fence.try_guard('shadowed/1/a', 1)  -- token_unknown
		A reset search_path; set session authorization default; alter role $app set search_path = shadow; drop schema shadow cascade`},
	{"an owner who is not fencegate: no other trigger with its functions, and no other's table", `
		A create table used (id integer primary key); alter table used owner to $owner
		B set session authorization $owner; select fence.protect('used', 'used/{id}')
		B insert into used values (1)  -- !LF101 used/1
		A select id from fence.protected_tables where table_id = 'used'::regclass  -- $id
		B create temp view fencegate_new as select 7 as id
		B create trigger mine after insert on used for each statement execute function fence.check_${id}_insert()  -- !42501
		B create or replace trigger fencegate_insert after insert on used for each statement execute function fence.check_${id}_insert()  -- !42501
		B select fence.prepare_protection('used', 'used/{id}', 'enforce'); create trigger mine after insert on used for each statement execute function fence.check_${id}_insert()  -- !42501
		A create table others (id integer); select fence.protect('others', 'others/{id}')
		B select fence.protect('others', 'x/{id}', 'observe')  -- !42501 own
		B select fence.forget_protection('others')  -- !42501 own
		B select fence.unprotect('others')  -- !42501
		A select template, mode, problem is null from fence.protected where table_name = 'others'::regclass  -- others/{id}|enforce|t
		B drop table used; create table used_again (id integer); select fence.protect('used_again', 'used/{id}'); select fence.unprotect('used_again')
		A select count(*) from pg_proc where proname like 'check_${id}_%'  -- 0`},
	{"an owner whose types have casts: its functions never run with fencegate's rights", `
		A create schema $owner authorization $owner; create table casting (id integer, name text, unit uuid, n integer); alter table casting owner to $owner; insert into casting values (1, 'a/b', gen_random_uuid(), 0); create table castings (id integer, name text, unit uuid, n integer) partition by list (n); create table castings_0 partition of castings default; alter table castings owner to $owner; alter table castings_0 owner to $owner
		A select fence.protect('casting', 'c/{id}/{name}/{unit}'); select fence.protect('castings', 'c/{id}/{name}/{unit}')
		B set session authorization $owner; create type $owner.evil as enum ('a'); create function $owner.evil_text($owner.evil) returns text language plpgsql as 'begin raise ''it ran as %'', current_user; end'; create function $owner.evil_integer($owner.evil) returns integer language plpgsql as 'begin raise ''it ran as %'', current_user; end'; create cast ($owner.evil as text) with function $owner.evil_text as implicit; create cast ($owner.evil as integer) with function $owner.evil_integer as implicit
		B create function $owner.same(text, text) returns boolean language plpgsql as 'begin raise ''it ran as %'', current_user; end'; create operator $owner.= (leftarg = text, rightarg = text, function = $owner.same); set search_path = $owner, pg_catalog, public; update casting set n = 1  -- !LF101 a%2Fb
		B update castings set n = 1; insert into castings_0 values (1, 'a/b', null, 0)  -- !LF101 a%2Fb
		B alter table casting alter id type evil using 'a'; alter table castings alter id type evil using 'a'
		C set session authorization $owner; update casting set n = 1  -- !55000 another type
		C delete from casting  -- !55000
		C insert into castings values ('a')  -- !55000
		B alter table casting alter id type integer using 1; alter table casting alter name type evil using 'a'; alter table castings alter id type integer using 1; alter table castings alter name type evil using 'a'
		D set session authorization $owner; update casting set n = 1  -- !42804
		D insert into castings values (1, 'a')  -- !55000
		B alter table casting alter name type text using 'x'; alter table casting alter unit type evil using 'a'
		E set session authorization $owner; update casting set n = 1  -- !55000`},
	{"what the owner of the table can do is shown", `
		A create table owned (id integer); select fence.protect('owned', 'owned/{id}'); alter table owned disable trigger fencegate_insert; insert into owned values (1); select problem from fence.protected where table_name = 'owned'::regclass  -- trigger fencegate_insert on public.owned does not always fire
		A alter table owned enable trigger fencegate_insert; select problem from fence.protected where table_name = 'owned'::regclass  -- trigger fencegate_insert on public.owned does not always fire
		A select fence.protect('owned', 'owned/{id}'); insert into owned values (2)  -- !LF101
		A drop trigger fencegate_truncate on owned; select problem from fence.protected where table_name = 'owned'::regclass  -- trigger fencegate_truncate on public.owned is missing
		A select fence.protect('owned', 'owned/{id}'); select 'owned'::regclass::oid, id from fence.protected_tables where table_id = 'owned'::regclass
		A select id from fence.protected_tables where table_id = 'owned'::regclass  -- $id
		A create or replace trigger fencegate_delete after delete on owned referencing old table as fencegate_old for each statement when (false) execute function fence.check_${id}_delete(); alter table owned enable always trigger fencegate_delete; select problem from fence.protected where table_name = 'owned'::regclass  -- trigger fencegate_delete on public.owned has another definition
		A select fence.protect('owned', 'owned/{id}'); create or replace function fence.check_${id}_update() returns trigger language plpgsql as 'begin return null; end'; select problem from fence.protected where table_name = 'owned'::regclass  -- the trigger functions are not those of the template any more: call fence.protect again
		A select fence.protect('owned', 'owned/{id}'); select problem is null from fence.protected where table_name = 'owned'::regclass  -- t`},
	{"an admission of another transaction", `
		A create table another (id integer primary key); insert into another values (1); select fence.protect('another', 'another/{id}'); select test.grant('another/1')  -- $t
		A begin; select fence.guard('another/1', $t, 1)  -- t
		B begin; delete from another  -- !LF101
		A commit; delete from another  -- !LF101
		B rollback; begin; delete from another  -- !LF101
		B rollback; begin; savepoint s; select fence.guard('another/1', $t, 2); rollback to s; delete from another  -- !LF101
		B rollback; begin; select pg_current_xact_id()
		A begin; select fence.guard('another/1', $t, 3); commit
		B delete from another  -- !LF101
		B rollback`},
	{"a fence that a restored dump says was admitted in a transaction of this number", `
		A create table future (id bigint); select fence.protect('future', 'future/{id}')
		A insert into fence.fences (resource, admitted_in) select 'future/' || n, n::text::xid8 from generate_series(pg_current_xact_id()::text::bigint, pg_current_xact_id()::text::bigint + 10000) n
		A begin; select count(*) from fence.fences where resource = 'future/' || pg_current_xact_id()::text and admitted_in = pg_current_xact_id()  -- 1
		A insert into future select pg_current_xact_id()::text::bigint  -- !LF101`},
	{"a role with the right to replace triggers is shown", `
		A create table replaced (id integer); select fence.protect('replaced', 'replaced/{id}'); grant all on replaced to $app; select problem from fence.protected where table_name = 'replaced'::regclass  -- $app may replace the triggers: revoke trigger on public.replaced from $app
		B set session authorization $app; create function pg_temp.nothing() returns trigger language plpgsql as 'begin return null; end'; create or replace trigger fencegate_insert after insert on replaced execute function pg_temp.nothing(); insert into replaced values (1)
		A revoke trigger on replaced from $app; select problem from fence.protected where table_name = 'replaced'::regclass  -- trigger fencegate_insert on public.replaced does not always fire
		A select fence.protect('replaced', 'replaced/{id}'); select problem is null from fence.protected where table_name = 'replaced'::regclass  -- t
		B insert into replaced values (2)  -- !LF101
		A grant trigger on replaced to public; select problem from fence.protected where table_name = 'replaced'::regclass  -- public may replace the triggers: revoke trigger on public.replaced from public`},
	{"the application's role may call and read what it needs", `
		A create table roles (id text primary key); select fence.protect('roles', 'roles/{id}'); grant select, insert, update, delete on roles to $app; select test.grant('roles/a%2Fb')  -- $t
		A set session authorization $app; begin; select fence.guard('roles/' || fence.segment('a/b'), $t, 1); insert into roles values ('a/b'); commit
		A select verdict from fence.try_guard('roles/a%2Fb', $t, 1)  -- token_reused
		A select problem is null from fence.protected where table_name = 'roles'::regclass  -- t`},
}

// protectedDatabase returns a database for scripts, and their variables.
func protectedDatabase(t *testing.T) (url string, variables map[string]string) {
	t.Helper()
	url = scripted(t, "")
	admin := connect(t, url)
	variables = map[string]string{"app": admin.Config().Database + "_app", "owner": admin.Config().Database + "_owner"}
	exec(t, admin, substitute("create role $app; create role $owner; grant create on schema public to $owner", variables))
	err := migrations.Grant(t.Context(), admin, migrations.Roles{
		App: []string{variables["app"]}, TableOwner: []string{variables["owner"]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, role := range variables {
			_, err := admin.Exec(context.Background(), fmt.Sprintf("drop owned by %[1]s cascade; drop role %[1]s", role))
			if err != nil {
				t.Error(err)
			}
		}
	})
	return url, variables
}

func TestProtect(t *testing.T) {
	t.Parallel()
	url, variables := protectedDatabase(t)
	runScripts(t, url, variables, append(protectScripts, attackScripts...))
}

// TestSegments checks the segment of each value, that it is valid in a name, and that the triggers compute the same.
func TestSegments(t *testing.T) {
	t.Parallel()
	conn := connect(t, scripted(t, ""))
	exec(t, conn, `
		create domain code as varchar; create domain shortcode as code check (length(value) < 1000);
		create table texts (a text, b varchar(600), c shortcode);
		select fence.protect('texts', 'texts/{a}/{b}/{c}', 'observe');
		create table parts (a text, n integer) partition by list (n); create table part partition of parts default;
		select fence.protect('parts', 'parts/{a}', 'observe')`)
	seen := map[string]string{}
	for value, want := range map[string]string{
		"": "%empty", ".": "%2E", "..": "%2E%2E", "...": "...", "/": "%2F", "%": "%25", "%null": "%25null",
		"%empty": "%25empty", "%2E": "%252E", "a/b/../c": "a%2Fb%2F..%2Fc", "a b": "a b", " ": " ", "\t\n\r": "%09%0A%0D",
		"\x01\x1f\x7f": "%01%1F%7F", "\u0080\u009f\u00a0": "%C2%80%C2%9F\u00a0", "größe": "größe", "日本/語": "日本%2F語",
		"😀%": "😀%25", "é": "é", "e\u0301": "e\u0301", `\`: `\`, `'"`: `'"`, "{a}": "{a}", "$body$": "$body$",
		strings.Repeat("x", 600): strings.Repeat("x", 600),
	} {
		var got string
		var valid bool
		err := conn.QueryRow(t.Context(), "select s, fence.is_name('x/' || left(s, 500)) from fence.segment($1) s", value).
			Scan(&got, &valid)
		if err != nil || got != want || !valid {
			t.Errorf("the segment of %q is %q (valid: %v, %v), want %q", value, got, valid, err, want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same segment", value, other)
		}
		seen[got] = value
		expectReported(t, conn, fmt.Sprintf("texts/%[1]s/%[1]s/%[1]s", want), "insert into texts values ($1::text, $1::text, $1::text)", value)
		expectReported(t, conn, "parts/"+want, "insert into parts values ($1::text, 0)", value)
	}
	expectReported(t, conn, "texts/%null/%null/%null", "insert into texts values ($1::text, $1::text, $1::text)", nil)
	var null string
	if err := conn.QueryRow(t.Context(), "select fence.segment(null)").Scan(&null); err != nil || null != "%null" {
		t.Errorf("the segment of null is %q (%v)", null, err)
	}
}

// expectReported runs a statement that must report one rejection, for the resource.
func expectReported(t *testing.T, conn *pgx.Conn, resource, sql string, value any) {
	t.Helper()
	exec(t, conn, "truncate fence.reported")
	exec(t, conn, sql, value)
	var got []string
	err := conn.QueryRow(t.Context(), "select array_agg(resource) from fence.reported").Scan(&got)
	if err != nil || len(got) != 1 || got[0] != resource {
		t.Errorf("%s with %q: the reported resources are %q (%v), want %q", sql, value, got, err, resource)
	}
}
