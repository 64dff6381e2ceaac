package migrations_test

// protectScripts are about tables with fence.protect. $app is a role with the right to read and write all tables that
// may call fence.guard; $owner may create tables, and protect its own.
var protectScripts = []script{
	{"insert, update, delete", `
		A create table plain (id integer primary key, n integer); insert into plain values (1, 1), (2, 2), (3, 3)
		A select fence.protect('plain', 'plain/{id}')
		A select template, mode, problem is null from fence.protected where table_name = 'plain'
			-- plain/{id}|enforce|t
		A select test.grant('plain/1')  -- $t
		A insert into plain values (4, 4)
			-- !LF101 {"code":"token_required","resource":"plain/4","table":"public.plain","granted_token":0
		A insert into plain values (4, 4)  -- !LF101 call fence.guard('plain/4', token) first
		A update plain set n = 0 where id = 1
			-- !LF101 "resource":"plain/1","table":"public.plain","granted_token":$t
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
	{"free inserts: a new row needs no token, a change of it does", `
		A create table inbox (id integer generated always as identity primary key, n integer);
			select fence.protect('inbox', 'inbox/{id}', inserts => 'free'); insert into inbox (n) values (1), (2)
		A update inbox set n = 3 where id = 1  -- !LF101 inbox/1
		A insert into inbox values (default, 3); delete from inbox where id = 3  -- !LF101 inbox/3
		A insert into inbox overriding system value values (1, 9) on conflict (id) do update set n = 9  -- !LF101 inbox/1
		A merge into inbox i using (values (1), (7)) v (id) on i.id = v.id
			when matched then update set n = 9 when not matched then insert (n) values (9)  -- !LF101 inbox/1
		A select test.grant('inbox/1')  -- $t
		A begin; select fence.guard('inbox/1', $t, 1); update inbox set n = 4 where id = 1; commit
		A select fence.protect('inbox', 'inbox/{id}', 'observe'); select fence.protect('inbox', 'inbox/{id}');
			insert into inbox (n) values (5); select problem is null, inserts from fence.protected
			where table_name = 'inbox'  -- t|free
		A select fence.protect('inbox', 'inbox/{id}', inserts => 'guarded'); insert into inbox (n) values (6)  -- !LF101
		A select fence.protect('inbox', 'inbox/{id}', inserts => 'free'); insert into inbox (n) values (6);
			select problem is null from fence.protected where table_name = 'inbox'  -- t
		A select fence.protect('inbox', 'inbox/{id}', inserts => 'some')  -- !22023 it must be guarded or free
		A create table lanes (id integer, n integer) partition by list (n); create table lanes_1 partition of lanes for values in (1);
			create table lanes_2 partition of lanes for values in (2); select fence.protect('lanes', 'lanes/{id}', inserts => 'free');
			insert into lanes values (1, 1), (2, 2)
		A copy lanes_1 3,1
		A update lanes set n = 1 where id = 2  -- !LF101 lanes/2
		A update lanes_1 set id = 4 where id = 3  -- !LF101 lanes/4
		A delete from lanes_2  -- !LF101 lanes/2`},
	{"free inserts: a row whose resource is too long for a name is refused", `
		A create domain long_text as text; create table longs (k long_text, l varchar, n integer, primary key (k, l));
			select fence.protect('longs', 'longs/{k}/{l}', inserts => 'free');
			insert into longs values (repeat('x', 253), repeat('y', 252)), ('', '.'), (chr(1), '..'), ('/', '%')
		A select count(*) from fence.claim('longs', 9, 'A')  -- 4
		A insert into longs values ('a', 'b'), (repeat('x', 253), repeat('y', 253))  -- !22023 of a row of longs is too long
		A insert into longs values ('a', repeat('%', 170))  -- !22023
		A select fence.protect('longs', 'longs/{k}/{l}', 'observe'); insert into longs values ('a', repeat('y', 600));
			select fence.protect('longs', 'longs/{k}/{l}'); select problem is null from fence.protected
			where table_name = 'longs'  -- t
		A select fence.protect('longs', 'longs/{n}'); insert into longs values ('b', repeat('y', 600));
			select count(*) from pg_trigger where tgrelid = 'longs'::regclass and tgname = 'fencegate_insert'  -- 0
		A create table long_lanes (k text, n integer) partition by list (n);
			create table long_lane partition of long_lanes for values in (1);
			select fence.protect('long_lanes', 'long_lanes/{k}', inserts => 'free'); insert into long_lanes values ('a', 1)
		A create table shorts (n integer); select fence.protect('shorts', 'shorts/{n}', inserts => 'free');
			select string_agg(split_part(p.proname, '_', 3), ' ' order by t.template, p.proname) from fence.protected_tables t
			join pg_proc p on starts_with(p.proname, 'check_' || t.id || '_')
			where t.table_id in ('long_lanes'::regclass, 'shorts'::regclass)  -- row delete row update
		A insert into long_lanes values (repeat('x', 600), 1)  -- !22023 of a row of long_lane is too long
		A insert into long_lane values (repeat('x', 600), 1)  -- !22023`},
	{"an update that moves a row needs both resources", `
		A create table moved (id integer primary key); insert into moved values (1);
			select fence.protect('moved', 'moved/{id}')
		A select test.grant('moved/1')  -- $t
		A select test.grant('moved/2')  -- $u
		A begin; select fence.guard('moved/1', $t, 1); update moved set id = 2  -- !LF101 "resource":"moved/2"
		A rollback; begin; select fence.guard('moved/2', $u, 1);
			update moved set id = 2  -- !LF101 "resource":"moved/1"
		A rollback; begin; select fence.guard('moved/2', $u, 1); select fence.guard('moved/1', $t, 1);
			update moved set id = 2; commit`},
	{"upsert, both arms, and merge", `
		A create table upserted (id integer primary key, n integer); insert into upserted values (1, 1);
			select fence.protect('upserted', 'upserted/{id}')
		A select test.grant('upserted/1')  -- $t
		A select test.grant('upserted/2')  -- $u
		A insert into upserted values (1, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/1
		A insert into upserted values (1, 2) on conflict do nothing
		A begin; select fence.guard('upserted/2', $u, 1);
			insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/1
		A rollback; begin; select fence.guard('upserted/1', $t, 1);
			insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2  -- !LF101 upserted/2
		A rollback; begin; select fence.guard('upserted/1', $t, 1);
			insert into upserted values (1, 2) on conflict (id) do update set id = 2  -- !LF101 upserted/2
		A rollback; begin; select fence.guard('upserted/1', $t, 1); select fence.guard('upserted/2', $u, 1);
			insert into upserted values (1, 2), (2, 2) on conflict (id) do update set n = 2; commit
		A merge into upserted u using (values (1),
			(3)) v (id) on u.id = v.id when matched then delete when not matched then insert values (v.id, 0)
			-- !LF101
		A begin; select fence.guard('upserted/1', $t, 2);
			merge into upserted u using (values (1),
			(3)) v (id) on u.id = v.id when matched then delete when not matched then insert values (v.id, 0)
			-- !LF101 upserted/3
		A rollback; begin; select fence.guard('upserted/1', $t, 2);
			merge into upserted u using (values (1), (3)) v (id) on u.id = v.id when matched then update set n = 9;
			commit`},
	{"copy, writable CTEs, cursors", `
		A create table copied (id integer primary key, n integer); insert into copied values (1, 1);
			select fence.protect('copied', 'copied/{id}'); create table archive (id integer, n integer)
		A select test.grant('copied/1')  -- $t
		A copy copied 2,2  -- !LF101 copied/2
		A with gone as (delete from copied returning *) insert into archive select * from gone  -- !LF101 copied/1
		A begin; declare c cursor for select * from copied for update; fetch c;
			update copied set n = 2 where current of c  -- !LF101 copied/1
		A rollback; with admitted as materialized (select fence.guard('copied/1', $t,
			1)) update copied set n = 2 from admitted where id = 1
		A begin; select fence.guard('copied/1', $t, 2);
			with gone as (delete from copied returning *) insert into archive select * from gone
		A copy copied 1,3
		A copy copied 2,3  -- !LF101 copied/2
		A rollback`},
	{"by a view, a rule, a function of another owner", `
		A create table seen (id integer primary key, n integer); insert into seen values (1, 1);
			select fence.protect('seen', 'seen/{id}')
		A create view seen_view as select * from seen; create table seen_beside (id integer);
			create rule beside as on insert to seen_beside do also insert into seen values (new.id, 0)
		A create function seen_function() returns void language sql security definer as 'update seen set n = n +
			1'; grant all on seen, seen_view, seen_beside to $app
		A set role $app; update seen_view set n = 2  -- !LF101 seen/1
		A insert into seen_beside values (7)  -- !LF101 seen/7
		A select seen_function()  -- !LF101 seen/1
		A reset role; select test.grant('seen/1')  -- $t
		A set role $app; begin; select fence.guard('seen/1', $t, 1); update seen_view set n = 2;
			select seen_function(); commit`},
	{"foreign keys that cascade", `
		A create table parents (id integer primary key); insert into parents values (1), (2)
		A create table children (id integer primary key,
			parent integer references parents on delete cascade on update cascade);
			insert into children values (10, 1), (11, 1), (12, 2)
		A create table kept (id integer primary key, parent integer references parents on delete set null);
			insert into kept values (20, 2)
		A select fence.protect('children', 'children/of/{parent}'); select fence.protect('kept', 'kept/{id}')
		A delete from parents where id = 1  -- !LF101 children/of/1
		A update parents set id = 3 where id = 1  -- !LF101 children/of/1
		A select test.grant('children/of/1')  -- $t
		A begin; select fence.guard('children/of/1', $t, 1); savepoint s;
			update parents set id = 3 where id = 1  -- !LF101 children/of/3
		A rollback to s; delete from parents  -- !LF101
		A rollback to s; delete from parents where id = 1; commit
		A select test.grant('children/of/2')  -- $u
		A begin; select fence.guard('children/of/2', $u, 1); delete from parents where id = 2  -- !LF101 kept/20
		A rollback; select test.grant('kept/20')  -- $v
		A begin; select fence.guard('children/of/2', $u, 1); select fence.guard('kept/20', $v, 1);
			delete from parents where id = 2; commit
		A select (select count(*) from children), parent is null from kept  -- 0|t`},
	{"deferred constraint triggers, and triggers of the user", `
		A create table late (id integer primary key, n integer); insert into late values (1, 1);
			select fence.protect('late', 'late/{id}'); create table causes (id integer)
		A create function late_write() returns trigger language plpgsql as 'begin update late set n = n + 1 where
			id = new.id; return null; end';
			create constraint trigger late_write after insert on causes deferrable initially deferred for each row
			execute function late_write()
		A select test.grant('late/1')  -- $t
		A begin; insert into causes values (1); commit  -- !LF101 late/1
		A begin; insert into causes values (1); select fence.guard('late/1', $t, 1); commit
		A begin; savepoint s; select fence.guard('late/1', $t, 2); insert into causes values (1); rollback to s;
			insert into causes values (1); commit  -- !LF101 late/1
		A create function stamp() returns trigger language plpgsql as 'begin new.id := 5; return new; end';
			create trigger stamp before insert or update on late for each row execute function stamp()
		A begin; select fence.guard('late/1', $t, 2); update late set n = 7 where id = 1  -- !LF101 late/5`},
	{"a generated column", `
		A create table generated (id integer, at date,
			day text generated always as ('d' || (at - date '2000-01-01')) stored);
			insert into generated values (1, '2000-01-03'); select fence.protect('generated', 'days/{day}')
		A insert into generated values (2, '2000-01-04')  -- !LF101 days/d3
		A select test.grant('days/d2')  -- $t
		A begin; select fence.guard('days/d2', $t, 1); update generated set id = 5; savepoint s;
			update generated set at = '2000-01-05'  -- !LF101 days/d4
		A rollback to s; commit; select fence.protect('generated', 'days/{at}')  -- !42804 generated column
		A select template from fence.protected where table_name = 'generated'  -- days/{day}`},
	{"partitions", `
		A create table parted (id integer, n integer) partition by range (id);
			create table parted_1 partition of parted for values from (0) to (10)
		A create table parted_2 partition of parted for values from (10) to (20) partition by list (n);
			create table parted_2a partition of parted_2 for values in (0, 1, 2);
			insert into parted values (1, 1), (11, 1)
		A select fence.protect('parted', 'parted/{id}');
			select problem is null from fence.protected where table_name = 'parted'  -- t
		A update parted set n = 2 where id = 1  -- !LF101 "resource":"parted/1","table":"public.parted"
		A update parted_1 set n = 2  -- !LF101 "resource":"parted/1","table":"public.parted"
		A delete from parted_2a  -- !LF101 "resource":"parted/11","table":"public.parted"
		A insert into parted_2 values (12, 1)  -- !LF101 parted/12
		A copy parted_2a 13,1  -- !LF101 parted/13
		A select test.grant('parted/1')  -- $t
		A begin; select fence.guard('parted/1', $t, 1); update parted set n = 3 where id = 1;
			update parted_1 set n = 2; savepoint s; update parted set id = 12 where id = 1  -- !LF101 parted/12
		A rollback to s; update parted set id = 1 where id = 11  -- !LF101 parted/11
		A rollback to s; commit; select test.grant('parted/2')  -- $v
		A begin; select fence.guard('parted/2', $v, 1); update parted set id = 2 where id = 1  -- !LF101 parted/1
		A rollback; select test.grant('parted/12')  -- $u
		A begin; select fence.guard('parted/1', $t, 2); select fence.guard('parted/12', $u, 1);
			update parted set id = 12 where id = 1; commit
		A truncate parted  -- !LF107 "code":"truncate"
		A truncate parted_1  -- !LF107 parted
		A truncate parted_2a  -- !LF107
		A create table parted_3 (id integer, n integer); insert into parted_3 values (21, 1);
			alter table parted attach partition parted_3 for values from (20) to (30)
		A update parted_3 set n = 2  -- !LF101 "resource":"parted/21","table":"public.parted"
		A select problem from fence.protected where table_name = 'parted'
			-- trigger fencegate_truncate on public.parted_3 is missing
		A select fence.protect('parted', 'parted/{id}'); truncate parted_3  -- !LF107
		A create table parted_4 partition of parted for values from (30) to (40);
			insert into parted_4 values (31, 1)  -- !LF101 parted/31
		A select fence.protect('parted', 'parted/{id}'); alter table parted_1 disable trigger fencegate_row;
			select problem from fence.protected where table_name = 'parted'
			-- trigger fencegate_row on public.parted_1 is disabled
		A select fence.protect('parted', 'parted/{id}');
			select problem is null from fence.protected where table_name = 'parted'  -- t
		A create table parted_5 (id integer);
			create trigger own before insert on parted_5 for each statement execute function test.nothing()
		A alter table parted detach partition parted_3; update parted_3 set n = 5;
			select string_agg(table_name, ' ' order by table_name) from fence.protected where table_name like 'parted%'
			-- parted parted_3
		A update parted_3 set n = 5;
			select problem from fence.protected where table_name = 'parted_3'
			-- parted_3 has triggers of a protected table, but is not protected, as after a restore without the schema fence or a detach: call fence.protect or fence.unprotect
		A truncate parted_3  -- !55000 not protected
		A select fence.protect('parted_1', 'parted/{id}')  -- !42809 partition
		A alter table parted owner to $owner;
			select problem from fence.protected where table_name = 'parted'
			-- $owner, the owner of public.parted, cannot attach partitions: call fence.protect again
		A alter table parted owner to current_user
		A select fence.unprotect('parted_3'); truncate parted_3;
			select count(*) from fence.protected where table_name = 'parted_3'  -- 0
		A select fence.unprotect('parted_1'); truncate parted_1  -- !LF107
		A select fence.unprotect('parted'); truncate parted;
			select count(*) from pg_trigger where tgname like 'fencegate%' and tgrelid::regclass::text like
			'parted%'  -- 0`},
	{"truncate", `
		A create table truncated (id integer primary key);
			create table referring (id integer references truncated);
			select fence.protect('referring', 'referring/{id}'); select fence.protect('truncated', 'truncated')
		A truncate truncated, referring  -- !LF101 truncated
		A truncate truncated cascade  -- !LF101 truncated
		A select fence.unprotect('referring'); truncate truncated, referring  -- !LF101 truncated
		A select test.grant('truncated')  -- $t
		A begin; select fence.guard('truncated', $t); truncate truncated cascade;
			insert into truncated values (1), (2); commit
		A select fence.protect('referring', 'referring/{id}', 'observe'); begin;
			select fence.guard('truncated', $t + 0, null, null, null)  -- !LF103 reused
		A rollback; select test.grant('truncated')  -- $t2
		A begin; select fence.guard('truncated', $t2); truncate truncated cascade; commit
		A select count(*), min(table_name) from fence.reported where code = 'truncate' and resource =
			'referring/{id}'  -- 1|public.referring`},
	{"a template of the table alone, of several columns, of one column twice", `
		A create table alone (id integer, n integer); select fence.protect('alone', 'alone/all');
			insert into alone values (1, 1)  -- !LF101 alone/all
		A select test.grant('alone/all')  -- $t
		A begin; select fence.guard('alone/all', $t); insert into alone select g, g from generate_series(1, 100) g;
			update alone set n = 0; delete from alone where id > 1; commit
		A update alone set n = 2  -- !LF101 "table":"public.alone","granted_token":$t
		A create table orders (tenant text, id bigint, unit uuid);
			select fence.protect('orders', 'tenants/{tenant}/orders/{id}/{unit}/{id}')
		A insert into orders values ('a/b', 9223372036854775807, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11')
			-- !LF101 "resource":"tenants/a%2Fb/orders/9223372036854775807/a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11/9223372036854775807"
		A insert into orders values (repeat('x', 500), 1, null)  -- !LF101 has 525 bytes, the limit is 512
		A insert into orders values (null, null, null)
			-- !LF101 "resource":"tenants/%null/orders/%null/%null/%null"`},
	{"columns that were renamed, given another type, or dropped", `
		A create table changed (id integer, name text, unit uuid, n integer);
			insert into changed values (1, 'a', null, 0);
			select fence.protect('changed', 'changed/{id}/{name}/{unit}');
			select test.grant('changed/1/a/%null')  -- $t
		A begin; select fence.guard('changed/1/a/%null', $t); update changed set n = 1; savepoint s;
			alter table changed alter id type bigint; update changed set n = 1; savepoint s
		A alter table changed alter id type numeric; update changed set n = 1  -- !55000 another type
		A rollback to s; alter table changed alter id type text; update changed set n = 1  -- !55000
		A rollback to s; alter table changed alter id type date using date '2000-01-01';
			update changed set n = 1  -- !55000
		A rollback to s; alter table changed alter name type date using date '2000-01-01';
			update changed set n = 1  -- !42804
		A rollback to s; alter table changed alter unit type text using 'x'; update changed set n = 1  -- !55000
		A rollback to s; alter table changed rename id to other; update changed set n = 1  -- !42703
		A rollback to s; alter table changed drop column name; update changed set n = 1  -- !42703
		A rollback; alter table changed rename id to other;
			select problem from fence.protected where table_name = 'changed'
			-- the table public.changed has no column 'id'
		A alter table changed rename other to id; alter table changed alter id type date using null;
			select problem from fence.protected where table_name = 'changed'
			-- the column 'id' of public.changed cannot be part of a resource
		A alter table changed alter id type text using null;
			select problem from fence.protected where table_name = 'changed'
			-- the trigger functions are not those of the template any more: call fence.protect again
		A create domain number as integer; create table domains (id number); select fence.protect('domains', 'd/{id}');
			insert into domains values (1)  -- !LF101 d/1
		A alter domain number rename to numeral; insert into domains values (1)  -- !55000 another type
		A select problem from fence.protected where table_name = 'domains'
			-- the trigger functions are not those of the template any more: call fence.protect again
		A select fence.protect('domains', 'd/{id}'); insert into domains values (1)  -- !LF101 d/1
		A select fence.protect('changed', 'changed/{id}');
			select problem is null from fence.protected where table_name = 'changed'  -- t
		A insert into changed values ('x')  -- !LF101 changed/x
		A select fence.protect('domains', 'd/{id}', 'observe'); alter domain numeral rename to digits;
			insert into domains values (1); select count(*) from fence.reported where table_name = 'public.domains'  -- 0`},
	{"a change of the template and the mode, and the end of the protection", `
		A create table twice (id integer); select fence.protect('twice', 'twice/{id}');
			select fence.protect('twice', 'other/{id}', 'observe'); insert into twice values (1), (2)
		A select string_agg(concat_ws(' ', resource, table_name, code, fencing_token), ',
			' order by resource) from fence.reported where table_name = 'public.twice'
			-- other/1 public.twice token_required 0, other/2 public.twice token_required 0
		A begin; insert into twice values (3); rollback;
			select count(*) from fence.reported where resource = 'other/3'  -- 0
		A insert into twice select generate_series(1000, 1500);
			select count(*) from fence.reported where table_name = 'public.twice'  -- 102
		A create table observed_parts (id integer) partition by list (id);
			create table observed_part partition of observed_parts default;
			select fence.protect('observed_parts', 'parts/{id}', 'observe'); begin;
			insert into observed_parts select generate_series(1, 99); insert into observed_parts values (100), (101); commit
		A insert into observed_parts values (102);
			select count(*) from fence.reported where table_name = 'public.observed_parts'  -- 101
		A select fence.protect('twice', 'twice/{id}'); insert into twice values (3)  -- !LF101 twice/3
		A select count(*), max(mode) from fence.protected where table_name = 'twice'  -- 1|enforce
		A select fence.unprotect('twice'); insert into twice values (3); select fence.unprotect('twice');
			select count(*) from pg_proc where pronamespace = 'fence'::regnamespace and proname ~ ('check_[0-9]+_')
			and prosrc like '%twice/%'  -- 0
		A select count(*) from fence.protected where table_name = 'twice'  -- 0
		A select fence.protect('twice', 'twice/{id}'); select 'twice'::regclass::oid  -- $oid
		A drop table twice; create table thrice (id integer);
			select fence.protect('thrice', 'thrice'); select problem from fence.protected where table_name = '$oid'
			-- public.twice was dropped: call fence.protect for a new table of that name, or fence.unprotect($oid)
		A create table twice (id integer); select fence.protect('twice', 'twice/{id}');
			select count(*) from fence.protected where table_name = '$oid'  -- 0
		A drop table thrice; select table_name from fence.protected where template = 'thrice'  -- $gone
		A select fence.unprotect($gone); select count(*) from fence.protected where template = 'thrice'  -- 0`},
	{"a mode is in force for transactions with an older snapshot", `
		A create table enforced (id integer); select fence.protect('enforced', 'enforced', 'observe')
		B begin isolation level repeatable read; select 1
		C begin isolation level repeatable read; select 1
		A select fence.protect('enforced', 'enforced', 'enforce')
		B insert into enforced values (1)  -- !LF101 enforced
		C truncate enforced  -- !40001`},
	{"observe waits for no writer, enforce does", `
		A create table eased (id integer primary key, n integer); select fence.protect('eased', 'eased/{id}');
			create table eased_parts (id integer) partition by list (id);
			create table eased_part partition of eased_parts default; select fence.protect('eased_parts', 'eased/part/{id}');
			select test.grant('eased/1')  -- $t
		B begin; select fence.guard('eased/1', $t, 1); insert into eased values (1); savepoint s;
			insert into eased values (2)  -- !LF101 eased/2
		B rollback to s; insert into eased_parts select 1 where false
		C begin isolation level repeatable read; select 1
		A set lock_timeout = '1s'; select fence.protect('eased', 'eased/{id}', 'observe');
			select fence.protect('eased_parts', 'eased/part/{id}', 'observe'); reset lock_timeout
		B insert into eased values (2), (3); insert into eased_parts values (1)
		C insert into eased values (4); commit
		A select string_agg(resource, ' ' order by id) from fence.reported where resource ~ '^eased/'  -- eased/4
		A select fence.protect('eased', 'eased/{id}')  -- waits
		B commit
		A ...
		A select string_agg(resource, ' ' order by id) from fence.reported where resource ~ '^eased/'
			-- eased/2 eased/3 eased/part/1 eased/4
		B insert into eased values (5)  -- !LF101 eased/5
		A alter table eased disable trigger fencegate_guard; select fence.protect('eased', 'eased/{id}', 'observe');
			alter table eased_part disable trigger fencegate_row; select fence.protect('eased_parts', 'eased/part/{id}', 'observe');
			select count(problem) from fence.protected where template ~ '^eased/'  -- 0`},
	{"observe, with a token", `
		A create table observed (id integer); select fence.protect('observed', 'observed', 'observe');
			select test.grant('observed')  -- $old
		A select test.grant('observed')  -- $new
		A begin; select fence.set_token($old, 5); insert into observed values (1); commit
		A begin; select fence.set_token($new, 1); insert into observed values (2);
			insert into observed values (3); commit
		A select string_agg(concat_ws(' ', code, reason, fencing_token, sequence, granted_token), ',
			') from fence.reported where resource = 'observed'  -- token_stale superseded $old 5 $new
		A select last_token, last_sequence from fence.fences where resource = 'observed'  -- $new|1
		A begin; select fence.set_token($old, 7, 'observed'); insert into observed values (7); commit
		A begin; select fence.set_token($old, 6); insert into observed values (4)
		B set lock_timeout = '1s'; select test.grant('observed')
		A commit; set fencegate.token = '0'; insert into observed values (5)
		A set fencegate.token = '1'; set fencegate.lease_id = 'x'; insert into observed values (6)
		A select string_agg(concat_ws(' ', code, fencing_token), ', ' order by id desc) from fence.reported
			where resource = 'observed' and code = 'token_required'  -- token_required 0, token_required 0`},
	{"names with quotes, signs and capitals", `
		A create table "T ""x"" %s %I $body$ {1}; --" ("$body$; select 1;
			--" integer, "a""b%I" text, "Übergrößenträgerxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" integer,
			"v_missing" integer, "r" integer, "found" integer, "new" integer, "tg_op" integer, "resource" integer,
			"w" integer)
		A select fence.protect('"T ""x"" %s %I $body$ {1}; --"', 'q''$body$ %s/{$body$; select 1;
			--}/{a"b%I}/{Übergrößenträgerxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}/{v_missing}/{r}/{found}/{new}/{tg_op}/{resource}/{w}')
		A insert into "T ""x"" %s %I $body$ {1};
			--" values (1, '%s', 3, 4, 5, 6, 7, 8, 9, 10)
			-- !LF101 "resource":"q'$body$ %s/1/%25s/3/4/5/6/7/8/9/10","table":"public.T \"x\" %s %I $body$ {1}; --"
		A select test.grant('q''$body$ %s/1/%25s/3/4/5/6/7/8/9/10')  -- $t
		A begin; select fence.guard('q''$body$ %s/1/%25s/3/4/5/6/7/8/9/10', $t);
			insert into "T ""x"" %s %I $body$ {1}; --" values (1, '%s', 3, 4, 5, 6, 7, 8, 9, 10);
			update "T ""x"" %s %I $body$ {1}; --" set r = 5; set session_replication_role = replica;
			update "T ""x"" %s %I $body$ {1}; --" set r = 5; delete from "T ""x"" %s %I $body$ {1}; --"; commit
		A select problem is null from fence.protected where template like 'q''%'  -- t
		A create schema "S.a"; create table "S.a"."t.b" ("Id" integer) partition by list ("Id");
			create table "S.a"."p.c" partition of "S.a"."t.b" default;
			select fence.protect('"S.a"."t.b"', 'S/{Id}');
			select fence.protect('"S.a"."t.b"', 'S/{id}')  -- !42703 'id'
		A insert into "S.a"."p.c" values (1)  -- !LF101 "resource":"S/1","table":"S.a.t.b"
		A select problem is null from fence.protected where template = 'S/{Id}'  -- t
		A select fence.unprotect('"S.a"."t.b"'); select fence.unprotect('"T ""x"" %s %I $body$ {1}; --"');
			insert into "S.a"."p.c" values (1)`},
	{"templates and tables that are refused", `
		A create table refused (id integer, n numeric, c char(3), at timestamptz);
			create view refused_view as select * from refused; create temp table refused_temp (id integer)
		A select fence.protect('refused', 'a//b')  -- !22023 path
		A select fence.protect('refused', 'a/x{id}')  -- !22023 'x{id}'
		A select fence.protect('refused', 'a/{id}{id}')  -- !22023 plain text or {column}
		A select fence.protect('refused', 'a/{}')  -- !22023 segment
		A select fence.protect('refused', 'a/{id')  -- !22023 segment
		A select fence.protect('refused', null)  -- !22023 path
		A select fence.protect('refused', 'a/{id}', 'watch')  -- !22023 the mode is 'watch', it must be enforce or observe
		A select fence.protect('refused', 'a/{id}', null)  -- !22023 the mode is NULL
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
}
