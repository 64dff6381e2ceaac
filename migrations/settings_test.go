package migrations_test

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
