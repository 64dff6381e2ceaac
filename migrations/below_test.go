package migrations_test

// belowScripts are about transactions that are guarded for a name above the rows, by a subtree lease.
var belowScripts = []script{
	{"a subtree lease admits rows with generated keys", `
		A create table keyed (id integer generated always as identity primary key, n integer);
			select fence.protect('keyed', 'keyed/{id}'); select test.grant('keyed', 'exclusive', 'subtree')  -- $t
		A insert into keyed (n) values (1)  -- !LF101 call fence.guard('keyed/1', token) first
		A begin; select fence.guard('keyed', $t, 1); insert into keyed (n) values (1), (2);
			update keyed set n = 3 where id = 3; savepoint s; insert into keyed (n) values (4); rollback to s
		A select string_agg(resource || ':' || last_token || '.' || last_sequence, ' ' order by resource)
			from fence.admitted  -- keyed:$t.1 keyed/2:$t.1 keyed/3:$t.1
		A commit; insert into keyed (n) values (5)  -- !LF101
		A begin; select fence.guard('keyed', $t, 2); insert into keyed (n) select 0 from generate_series(1, 500);
			delete from keyed where n = 0; commit
		A begin; select fence.guard('keyed/3', $t, 7); update keyed set n = 7 where id = 3; commit
		A begin; select fence.guard('keyed', $t, 5); update keyed set n = 8  -- !LF103 the last accepted write had $t.7
		A rollback; begin; select fence.guard('keyed', $t, 8); update keyed set n = 8; delete from keyed; commit`},
	{"a lease on the name alone admits nothing below", `
		A create table alone (id integer generated always as identity primary key);
			select fence.protect('alone', 'alone/{id}'); select test.grant('alone-tree', 'exclusive', 'subtree'),
			test.grant('alone', 'exclusive', 'subtree'); select test.grant('alone')  -- $t
		A insert into alone default values  -- !LF101 protect the table with inserts => 'free', or guard a name above
		A begin; select fence.guard('alone', $t, 1); insert into alone default values  -- !LF101 scope subtree`},
	{"a guard above admits below it alone", `
		A create table branches (a integer, b integer generated always as identity);
			select fence.protect('branches', 'branches/{a}/{b}'); select test.grant('branches', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('branches/1', $t, 1); insert into branches (a) values (1); savepoint s
		A insert into branches (a) values (2)  -- !LF101
		A rollback to s; select fence.guard('branches/2', $t, 1); insert into branches (a) values (2), (1); commit`},
	{"a subtree lease does not admit a row that a newer lease holds", `
		A create table taken (id integer primary key, n integer); insert into taken values (1, 1), (2, 2);
			select fence.protect('taken', 'taken/{id}'); select test.grant('taken', 'exclusive', 'subtree')  -- $t
		A select test.grant('taken/1')  -- $new
		A begin; select fence.guard('taken', $t, 1); savepoint s; update taken set n = 666
			-- !LF103 "resource":"taken/1","table":"public.taken","fencing_token":$t,"sequence":1,"granted_token":$new
		A rollback to s; update taken set n = 3 where id = 2
		B select test.grant('taken/2')  -- waits
		A commit
		B ...
		A begin; select fence.guard('taken', $t, 2); update taken set n = 666 where id = 2  -- !LF103 superseded
		A rollback; select test.grant('taken', 'exclusive', 'subtree')  -- $newest
		A begin; select fence.guard('taken', $newest, 1); update taken set n = 5
		B begin; select fence.guard('taken', $t, 3)  -- !LF103 superseded`},
	{"a writer below waits for a transaction that has the fence", `
		A create table waiting (id integer primary key, n integer); insert into waiting values (1, 1);
			select fence.protect('waiting', 'waiting/{id}'); select test.grant('waiting', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('waiting/1', $t, 1); select test.grant('waiting/1')
		B begin; select fence.guard('waiting', $t, 2); update waiting set n = 666  -- waits
		A commit
		B ...  -- !LF103 "resource":"waiting/1"
		B rollback; select test.grant('waiting', 'exclusive', 'subtree')  -- $t
		B begin isolation level repeatable read; select fence.guard('waiting', $t, 1)
		A select test.grant('waiting/1')
		B update waiting set n = 666  -- !40001`},
	{"the policies of the rows count below a subtree lease", `
		A insert into fence.policies (prefix, rule, require_lease_id, require_live_lease) values
			('ruled/same', 'same_token', false, false), ('ruled/id', 'strict', true, false),
			('ruled/live', 'strict', false, true), ('ids', 'strict', true, false)
		A create table ruled (kind text, id integer generated always as identity);
			select fence.protect('ruled', 'ruled/{kind}/{id}'); select test.grant('ruled', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ruled', $t, 1); savepoint s; insert into ruled (kind) values ('id')  -- !LF104
		A rollback to s; insert into ruled (kind) values ('live'), ('same'); commit; select test.expire('ruled')
		A begin; select fence.guard('ruled', $t, 2); insert into ruled (kind) values ('live')  -- !LF105
		A rollback; begin; select fence.guard('ruled/same', $t, 3); insert into ruled (kind) values ('same'); commit
		A begin; select fence.guard('ruled/same', $t); update ruled set kind = 'same' where kind = 'same'; commit
		A create table ids (id integer generated always as identity); select fence.protect('ids', 'ids/{id}');
			select test.grant('ids', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('ids', $t, 1, test.lease('ids', $t)); insert into ids default values; commit`},
	{"the mode observe, partitions, and a name that is too long, below a subtree lease", `
		A create table watched (id integer generated always as identity); select fence.protect('watched', 'watched/{id}', 'observe');
			select test.grant('watched', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('watched', $t, 1); insert into watched default values; commit;
			select count(*) from fence.reported where table_name = 'public.watched'  -- 0
		A create table parts (id integer, n text) partition by range (id);
			create table parts_1 partition of parts for values from (0) to (10); select fence.protect('parts', 'parts/{n}');
			select test.grant('parts', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('parts', $t, 1); insert into parts values (1, 'a'), (2, 'b');
			insert into parts values (1, repeat('x', 600))  -- !LF101 606 bytes`},
}
