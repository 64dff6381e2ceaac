package migrations_test

import (
	"slices"
	"testing"
)

// guardScripts are about fence.guard and fence.try_guard, without a policy or a subtree lease for their names.
var guardScripts = []script{
	{"LF101 without a token", `
		A select fence.guard('lf101', null)  -- !LF101 {"code":"token_required","resource":"lf101"
		A select fence.guard('lf101', null)  -- !LF101 "granted_token":0,"last_token":0,"last_sequence":0}
		A select fence.guard('lf101', null)  -- !LF101 the token is null
		A select verdict, reason from fence.try_guard('lf101', null)  -- token_required|`},
	{"LF102 a token that was never granted", `
		A select fence.guard('lf102', 1)  -- !LF102 {"code":"token_unknown","resource":"lf102","fencing_token":1,
		A select fence.guard('lf102', 1)  -- !LF102 No lease on lf102 is known: acquire it
		A select test.grant('lf102')  -- $t
		A select fence.guard('lf102', $t + 1000)  -- !LF102 "granted_token":$t,
		A select fence.guard('lf102', $t)  -- t`},
	{"LF103 superseded", `
		A select test.grant('lf103')  -- $old
		A select test.grant('lf103')  -- $new
		A select fence.guard('lf103', $old, 7)
			-- !LF103 "code":"token_stale","reason":"superseded","resource":"lf103","fencing_token":$old,"sequence":7,"granted_token":$new,"last_token":0
		A select * from fence.try_guard('lf103', $old)  -- token_stale|superseded|$new|0|0
		A select fence.guard('lf103', $new)  -- t`},
	{"LF103 reused: a lower sequence", `
		A select test.grant('reused')  -- $t
		A select fence.guard('reused', $t, 5)  -- t
		A select fence.guard('reused', $t, 4)  -- !LF103 "reason":"reused"
		A select fence.guard('reused', $t)  -- !LF103 "last_sequence":5
		A select fence.guard('reused', $t, 6)  -- t`},
	{"LF103 released, broken and shared", `
		A select test.grant('ended')  -- $t
		A select test.release('ended', $t)  -- released
		A select fence.guard('ended', $t)  -- !LF103 "reason":"released"
		A select test.grant('ended')  -- $t2
		A select outcome from fence.break('ended', 'note')  -- broken
		A select fence.guard('ended', $t2)  -- !LF103 "reason":"released"
		A select test.grant('ended', 'shared')  -- $t3
		A select fence.guard('ended', $t3)  -- !LF103 "reason":"shared"
		A select fence.guard('ended', $t2)  -- !LF103 "reason":"superseded"`},
	{"an expired lease that nobody has replaced may write", `
		A select test.grant('late')  -- $t
		A select test.expire('late')
		A select fence.guard('late', $t)  -- t`},
	{"LF104 another lease_id", `
		A select test.grant('lf104')  -- $t
		A select fence.guard('lf104', $t, null, gen_random_uuid())  -- !LF104 "code":"lease_mismatch"
		A select fence.guard('lf104', $t, null, test.lease('lf104', $t))  -- t`},
	{"LF106 after a lost answer to COMMIT, also after a newer grant", `
		A select test.grant('lf106')  -- $t
		A begin; select fence.guard('lf106', $t, 3); commit
		B begin; select fence.guard('lf106', $t, 3)  -- !LF106 "code":"token_reused"
		B rollback
		B select * from fence.try_guard('lf106', $t, 3)  -- token_reused||$t|$t|3
		A select test.grant('lf106')  -- $new
		B select fence.guard('lf106', $t, 3)  -- !LF106 "granted_token":$new,"last_token":$t,"last_sequence":3}
		A select fence.guard('lf106', $new, 1)  -- t
		B select fence.guard('lf106', $t, 3)  -- !LF103 superseded`},
	{"LF103 for a plain token that was used: it may have been another transaction", `
		A select test.grant('plain')  -- $t
		A select fence.guard('plain', $t)  -- t
		A select fence.guard('plain', $t)  -- !LF103 "reason":"reused"
		A select fence.guard('plain', $t)  -- !LF103 the token $t was used before: the last accepted write had $t
		A select fence.guard('plain', $t)  -- !LF103 whether it was this one, repeated, is not known. Number
		A select fence.guard('plain', $t, 0)  -- !LF106 If it is another one, give it a greater sequence.`},
	{"a rejected try_guard in an open transaction delays no grant", `
		A select test.grant('undone-try')  -- $t
		A select test.grant('undone-try')  -- $new
		A begin; select verdict from fence.try_guard('undone-try', $t, 1)  -- token_stale
		B set lock_timeout = '1s'; select test.grant('undone-try')
		A commit; select count(*) from fence.reported where resource = 'undone-try'  -- 1`},
	{"a newer grant or a release in the transaction takes its admission back", `
		A select test.grant('own')  -- $t
		A begin; select fence.guard('own', $t); select test.release('own', $t);
			select count(*) from fence.admitted  -- 0
		A rollback; begin; select fence.guard('own', $t); select test.grant('own'); select count(*) from fence.admitted
			-- 0
		A rollback; select test.grant('own-tree', 'exclusive', 'subtree')  -- $s
		A begin; select fence.guard('own-tree/a', $s); select test.grant('own-tree', 'exclusive', 'subtree');
			select count(*) from fence.admitted  -- 0`},
	{"a digest: the same transaction is a replay, another one is stale", `
		A select test.grant('digest')  -- $t
		A select fence.guard('digest', $t, 1, null, '\x01')  -- t
		A select fence.guard('digest', $t, 1, null, '\x01')  -- f
		A select verdict from fence.try_guard('digest', $t, 1, null, '\x01')  -- replayed
		A select fence.guard('digest', $t, 1, null, '\x02')  -- !LF103 reused
		A select fence.guard('digest', $t, 1)  -- !LF106
		A select test.grant('digest')  -- $new
		A select fence.guard('digest', $t, 1, null, '\x01')  -- f
		A select fence.guard('digest', $new, 1)  -- t
		A select fence.guard('digest', $new, 1, null, '\x01')  -- !LF106
		A select fence.guard('digest', $t, 1, null, '\x01')  -- !LF103 superseded`},
	{"a digest is not that of a write by HTTP", `
		A select test.grant('http')  -- $t
		A select verdict from fence.write_one('http', $t, 1, null, '\x01', 'put', 'key', '\x01', 'text/plain',
			null, null)  -- admitted
		A select fence.guard('http', $t, 1, null, '\x01')  -- !LF103 reused
		A select fence.guard('http', $t, 1)  -- !LF106
		A select fence.guard('http', $t, 2)  -- t
		A select verdict from fence.write_one('http', $t, 2, null, '\x01', 'put', 'key', '\x01', 'text/plain',
			null, null)  -- token_stale`},
	{"invalid arguments", `
		A select fence.guard(null, 1)  -- !22023 null
		A select fence.guard('a//b', 1)  -- !22023 the resource 'a//b' is not a name
		A select fence.guard('a/../b', 1)  -- !22023 name
		A select fence.guard(repeat('x', 513), 1)  -- !22023 name
		A select fence.guard('a', 0)  -- !22023 the token is 0
		A select fence.guard('a', 9007199254740992)  -- !22023 2^53
		A select fence.guard('a', 1, -1)  -- !22023 the sequence is -1
		A select test.grant('negative')  -- $t
		A select fence.guard('negative', $t, -1)  -- !22023 the sequence is -1
		A select fence.guard('a', 1, null, null, '\x00')  -- !22023 sequence
		A select fence.guard('a', 1, 1, null, repeat('x', 65)::bytea)  -- !22023 64`},
	{"again in one transaction: the same number, and greater ones", `
		A select test.grant('again')  -- $t
		A begin
		A select fence.guard('again', $t, 1)  -- t
		A select fence.guard('again', $t, 1)  -- t
		A select fence.guard('again', $t, 1, null, '\x01')  -- t
		A select verdict from fence.try_guard('again', $t, 1)  -- admitted
		A select fence.guard('again', $t, 2)  -- t
		A select fence.guard('again', $t, 2)  -- t
		A savepoint s; select fence.guard('again', $t, 1)  -- !LF103 reused
		A rollback to s; commit
		A select fence.guard('again', $t, 2)  -- !LF106`},
	{"a savepoint that is rolled back takes the admission back", `
		A select test.grant('savepoint')  -- $t
		A begin; savepoint one
		A select fence.guard('savepoint', $t, 1)  -- t
		A select count(*) from fence.admitted where resource = 'savepoint'  -- 1
		A rollback to one
		A select count(*) from fence.admitted where resource = 'savepoint'  -- 0
		A savepoint two; select fence.guard('savepoint', $t, 1)  -- t
		A release two; release one
		A select last_token, last_sequence from fence.admitted where resource = 'savepoint'  -- $t|1
		A commit
		A begin; select pg_current_xact_id(); select count(*) from fence.admitted  -- 0
		A rollback; select fence.guard('savepoint', $t, 1)  -- !LF106`},
	{"a rejected guard leaves no trace, a rolled-back one neither", `
		A select test.grant('trace')  -- $t
		A begin; select fence.guard('trace', $t, 9); rollback
		A select fence.guard('trace', $t, 8)  -- t
		A begin; select verdict from fence.try_guard('trace', $t, 7)  -- token_stale
		A select count(*) from fence.admitted  -- 0
		A commit; select last_sequence from fence.fences where resource = 'trace'  -- 8`},
	{"several guards in one transaction", `
		A select test.grant('several/a')  -- $a
		A select test.grant('several/b')  -- $b
		A begin; select fence.guard('several/a', $a); select fence.guard('several/b', $b)  -- t
		A select string_agg(resource, ' ' order by resource) from fence.admitted  -- several/a several/b
		A commit`},
	{"P3: a grant waits for an admitted transaction", `
		A select test.grant('p3')  -- $t
		A begin; select fence.guard('p3', $t, 1)  -- t
		B select test.grant('p3')  -- waits
		A commit
		B ...  -- $new
		A select fence.guard('p3', $t, 2)  -- !LF103 superseded`},
	{"P3: a guard that waits behind a grant is rejected", `
		A select test.grant('behind')  -- $t
		B begin; select test.grant('behind')  -- $new
		A select fence.guard('behind', $t, 1)  -- waits
		B commit
		A ...  -- !LF103 "granted_token":$new
		A select verdict, reason from fence.try_guard('behind', $t, 1)  -- token_stale|superseded`},
	{"a guard that waits behind a grant that is rolled back is admitted", `
		A select test.grant('undone')  -- $t
		B begin; select test.grant('undone')
		A select fence.guard('undone', $t, 1)  -- waits
		B rollback
		A ...  -- t`},
	{"a guard that waits behind a release is rejected", `
		A select test.grant('releasing')  -- $t
		B begin; select test.release('releasing', $t)
		A select fence.guard('releasing', $t, 1)  -- waits
		B commit
		A ...  -- !LF103 released`},
	{"two transactions with one number: one learns that the other was committed", `
		A select test.grant('twins')  -- $t
		A begin; select fence.guard('twins', $t, 1)  -- t
		B begin; select fence.guard('twins', $t, 1)  -- waits
		A commit
		B ...  -- !LF106
		B rollback
		A begin; select fence.guard('twins', $t, 2, null, '\x02')  -- t
		B begin; select fence.guard('twins', $t, 2, null, '\x02')  -- waits
		A commit
		B ...  -- f`},
	{"repeatable read: a grant or a release since the snapshot is 40001", `
		A select test.grant('rr')  -- $t
		A begin isolation level repeatable read; select 1
		B select test.grant('rr')  -- $new
		A select fence.guard('rr', $t, 1)  -- !40001
		A rollback
		A begin isolation level repeatable read; select 1
		B select test.release('rr', $new)
		A select fence.guard('rr', $new, 1)  -- !40001`},
	{"repeatable read: the token of a grant since the snapshot is 40001", `
		A begin isolation level repeatable read; select 1
		B select test.grant('rr-new')  -- $t
		A select fence.guard('rr-new', $t, 1)  -- !40001 Repeat the transaction
		A rollback; begin isolation level repeatable read; select 1
		B select test.grant('rr-new')  -- $new
		A select verdict from fence.try_guard('rr-new', $new, 1)  -- !40001
		A rollback; begin isolation level repeatable read; select fence.guard('rr-new', $new + 100000)  -- !LF102`},
	{"serializable: a guard that waits behind a grant", `
		A select test.grant('ssi')  -- $t
		B begin; select test.grant('ssi')
		A begin isolation level serializable; select fence.guard('ssi', $t, 1)  -- waits
		B commit
		A ...  -- !40001`},
	{"repeatable read: a grant waits for an admitted transaction", `
		A select test.grant('rr-p3')  -- $t
		A begin isolation level repeatable read; select fence.guard('rr-p3', $t, 1)  -- t
		B select test.grant('rr-p3')  -- waits
		A select fence.guard('rr-p3', $t, 2)  -- t
		A commit
		B ...  -- $new
		A begin isolation level serializable; select fence.guard('rr-p3', $new, 1)  -- t
		B select test.grant('rr-p3')  -- waits
		A commit
		B ...`},
	{"repeatable read: LF106, a replay and a savepoint", `
		A select test.grant('rr-again')  -- $t
		A begin isolation level repeatable read; savepoint s;
			select fence.guard('rr-again', $t, 1, null, '\x01')  -- t
		A rollback to s; select count(*) from fence.admitted  -- 0
		A select fence.guard('rr-again', $t, 1, null, '\x01')  -- t
		A select fence.guard('rr-again', $t, 1)  -- t
		A commit
		A begin isolation level repeatable read; select fence.guard('rr-again', $t, 1, null, '\x01')  -- f
		A select fence.guard('rr-again', $t, 1)  -- !LF106`},
	{"lock_timeout", `
		A select test.grant('timeout')  -- $t
		B begin; select fence.guard('timeout', $t, 1)  -- t
		A set lock_timeout = '20ms'; select fence.guard('timeout', $t, 2)  -- !55P03`},
	{"two guards in opposite orders: one is 40P01, the other is admitted", `
		A select test.grant('order/a')  -- $a
		A select test.grant('order/b')  -- $b
		A set deadlock_timeout = '1min'; begin; select fence.guard('order/a', $a)  -- t
		B begin; select fence.guard('order/b', $b)  -- t
		A select fence.guard('order/b', $b)  -- waits
		B select fence.guard('order/a', $a)  -- !40P01
		B rollback
		A ...  -- t`},
	{"a write alone changes the record of its key", `
		A select test.grant('keys')  -- $t
		A select created from fence.write_one('keys', $t, 1, null, '\x01', 'put', 'a', '\x01', 'text/plain', null, null)  -- t
		A select created from fence.write_one('keys', $t, 2, null, '\x02', 'put', 'b', '\x02', 'text/plain', null, null)  -- t
		A select string_agg(concat_ws(' ', key, value, version), ', ' order by key) from fence.records
			where resource = 'keys'  -- a \x01 1, b \x02 2`},
	{"synchronous_commit stays as the user set it", `
		A select test.grant('sync')  -- $t
		A set synchronous_commit = off; begin; select fence.guard('sync', $t, 1);
			select verdict from fence.try_guard('sync', $t, 1)
		A select current_setting('synchronous_commit')  -- off
		A select fence.guard('sync', $t, 2); select current_setting('synchronous_commit')  -- off`},
	{"a read-only transaction", `
		A select test.grant('read-only')  -- $t
		A begin read only; select fence.guard('read-only', $t)  -- !25006 this transaction is read-only
		A rollback; begin read only; select fence.try_guard('read-only', $t)  -- !25006 begin read write
		A rollback; begin read only; select fence.acquire('read-only', 'a')  -- !25006 begin read write`},
	{"rejections are counted, and those by try_guard recorded", `
		A select test.grant('counted')  -- $t
		A select coalesce(pg_sequence_last_value('fence.rejected_by_sql_lease_mismatch'), 0)  -- $before
		A begin; select fence.guard('counted', $t, 1, gen_random_uuid())  -- !LF104
		A rollback; select fence.try_guard('counted', $t, 2, gen_random_uuid())
		A begin; select fence.try_guard('counted', $t, 3, gen_random_uuid()); rollback
		A select pg_sequence_last_value('fence.rejected_by_sql_lease_mismatch') >= $before + 3  -- t
		A select count(*), min(code), min(sequence), min(fencing_token), min(address),
			min(table_name) from fence.reported where resource = 'counted'  -- 1|lease_mismatch|2|$t|local|`},
	{"a write alone waits no longer than it is told", `
		A select test.grant('busy')  -- $t
		A begin; select fence.guard('busy', $t, 1)
		B select verdict from fence.write_one('busy', $t, 2, null, null, 'put', 'k', 'v', 'text/plain', null, 0)  -- busy
		B select verdict from fence.write_one('busy', $t, 2, null, null, 'put', 'k', 'v', 'text/plain', null, 1)  -- !55P03
		A commit
		B select verdict from fence.write_one('busy', $t, 2, null, null, 'put', 'k', 'v', 'text/plain', null, 0)  -- admitted`},
}

// ruledScripts need policies and subtree leases.
var ruledScripts = []script{
	{"same_token admits a token many times, and never says that it was committed", `
		A insert into fence.policies (prefix, rule, require_lease_id) values ('same', 'same_token', false),
			('same/id', 'same_token', true)
		A select test.grant('same/a')  -- $t
		A select fence.guard('same/a', $t)  -- t
		A select fence.guard('same/a', $t)  -- t
		A select fence.guard('same/a', $t, 4)  -- t
		A select fence.guard('same/a', $t)  -- t
		A select last_sequence from fence.fences where resource = 'same/a'  -- 4
		A select fence.guard('same/a', $t, 4)  -- !LF106 the last accepted write had this token and sequence
		A select test.grant('same/b')  -- $t
		A select fence.guard('same/b', $t)  -- t
		A select test.grant('same/b')  -- $new
		A select fence.guard('same/b', $t)  -- !LF103 superseded
		A select test.release('same/b', $new)
		A select fence.guard('same/b', $new)  -- !LF103 released
		A select test.grant('same/id')  -- $t
		A select fence.guard('same/id', $t, null, test.lease('same/id', $t))  -- t
		A select fence.guard('same/id', $t)  -- !LF104
		A select fence.guard('same/id', $t, null, test.lease('same/id', $t))  -- t`},
	{"require_lease_id", `
		A insert into fence.policies (prefix, require_lease_id) values ('id', true)
		A select test.grant('id')  -- $t
		A select fence.guard('id', $t, 1)  -- !LF104 returned with this token (fence.acquire)
		A select fence.guard('id', $t, 1, test.lease('id', $t))  -- t
		A select fence.guard('id', $t, 1, test.lease('id', $t))  -- !LF106`},
	{"LF105 require_live_lease, by the clock", `
		A insert into fence.policies (prefix, require_live_lease) values ('live', true)
		A select test.grant('live')  -- $t
		A select fence.guard('live', $t, 1)  -- t
		A select test.expire('live')
		A select fence.guard('live', $t, 2)  -- !LF105 "code":"lease_expired"
		A select fence.guard('live', $t, 1)  -- !LF106`},
	{"repeatable read: a renewal since the snapshot is 40001, not LF105", `
		A insert into fence.policies (prefix, require_live_lease) values ('renewed', true)
		A select test.grant('renewed')  -- $t
		A select test.expire('renewed')
		A begin isolation level repeatable read; select 1
		B update fence.leases set expires_at = clock_timestamp() + interval '10 min' where lock = 'renewed'
		A select fence.guard('renewed', $t, 1)  -- !40001
		A rollback; begin isolation level repeatable read; select fence.guard('renewed', $t, 1)  -- t`},
	{"repeatable read: an external fence that was set back since the snapshot is 40001, not LF103", `
		A insert into fence.policies (prefix, authority) values ('back', 'external')
		A select fence.guard('back/a', 100); begin isolation level repeatable read; select 1
		B select fence.set_fence('back/a', 10, 0)
		A select fence.guard('back/a', 50)  -- !40001
		A rollback; select fence.guard('back/a', 50)  -- t`},
	{"a rejection by the times of the lease waits: the same transaction may be in its COMMIT", `
		A insert into fence.policies (prefix, require_live_lease) values ('commit', true)
		A select test.grant('commit/a')  -- $t
		A begin; select fence.guard('commit/a', $t, 1)
		B select test.expire('commit/a')
		B select verdict from fence.try_guard('commit/a', $t, 1)  -- waits
		A commit
		B ...  -- token_reused`},
	{"external authority: any token that rises", `
		A insert into fence.policies (prefix, authority) values ('external', 'external')
		A select fence.guard('external/a', 100)  -- t
		A select fence.guard('external/a', 100)  -- !LF103 reused
		A select fence.guard('external/a', 99)  -- !LF103 superseded
		A select fence.guard('external/a', 101, 5, null, '\x01')  -- t
		A select fence.guard('external/a', 101, 5, null, '\x01')  -- f
		A begin; select fence.guard('external/a', 102)  -- t
		B set lock_timeout = '2s'; select fence.guard('external/a', 50)  -- !LF103 superseded
		A rollback; begin; select fence.guard('external/new', 7)  -- t
		B select fence.guard('external/new', 6)  -- waits
		A commit
		B ...  -- !LF103`},
	{"a subtree lease writes below, until the subtree is granted anew", `
		A select test.grant('tree', 'exclusive', 'subtree')  -- $t
		A begin; select fence.guard('tree/x/new', $t, 1)  -- t
		A select count(*) from fence.admitted where resource = 'tree/x/new'  -- 1
		B select test.grant('tree', 'exclusive', 'subtree')  -- waits
		A commit
		B ...  -- $new
		A select fence.guard('tree/x/new', $t, 2)  -- !LF103 "granted_token":$new
		A select fence.guard('tree/x/new', $t, 1)  -- !LF106
		A select fence.guard('tree/y', $t, 1)  -- !LF103 superseded
		A select fence.guard('tree/x/new', $new, 1)  -- t
		A select fence.guard('tree', $new, 1)  -- t
		A select fence.guard('treeless', $new, 1)  -- !LF102
		A select test.grant('tree/x/new')  -- $below
		A select fence.guard('tree/x/new', $new, 2)  -- !LF103 "granted_token":$below
		A select fence.guard('tree/x/new', $below, 1)  -- t`},
	{"repeatable read: a grant of a subtree since the snapshot is 40001", `
		A select test.grant('rr-tree', 'exclusive', 'subtree')  -- $t
		A begin isolation level repeatable read; select 1
		B select test.grant('rr-tree', 'exclusive', 'subtree')  -- $new
		A select fence.guard('rr-tree/a', $t, 1)  -- !40001
		A rollback; begin isolation level repeatable read; select 1
		B select test.grant('rr-tree', 'exclusive', 'subtree')  -- $newest
		A select fence.guard('rr-tree/b', $newest, 1)  -- !40001
		A rollback; select fence.guard('rr-tree/b', $newest, 1)  -- t`},
}

// firstPolicy runs while there is no policy.
var firstPolicy = script{"the first policy is set while a guard waits", `
	A select test.grant('first')  -- $t
	A begin; select fence.guard('first', $t, 1)  -- t
	B select fence.guard('first', $t, 2)  -- waits
	C insert into fence.policies (prefix, require_lease_id) values ('first', true); select pg_sleep(0.01)
	A commit
	B ...  -- !40001 policy
	B select fence.guard('first', $t, 2)  -- !LF104
	C delete from fence.policies
	A create table firsts (name text); insert into firsts values ('first'); select fence.protect('firsts', '{name}');
		begin; select fence.guard('first', $t, 2)
	B begin; select fence.set_token($t, 3); delete from firsts  -- waits
	C insert into fence.policies (prefix, require_lease_id) values ('first', true); select pg_sleep(0.01)
	A commit
	B ...  -- !40001 policy
	C delete from fence.policies`}

func TestGuard(t *testing.T) {
	t.Parallel()
	url := scripted(t, "")
	if err := firstPolicy.run(t.Context(), url, nil); err != nil {
		t.Errorf("%s: %v", firstPolicy.name, err)
	}
	runScripts(t, url, nil, guardScripts)
}

// TestGuardByRule checks that guards work the same where other names have policies and subtree leases, and that theirs
// count.
func TestGuardByRule(t *testing.T) {
	t.Parallel()
	url := scripted(t, `
		insert into fence.policies (prefix) values ('unrelated');
		select test.grant('unrelated/tree', 'exclusive', 'subtree')`)
	runScripts(t, url, nil, slices.Concat(guardScripts, ruledScripts, nestedScripts, belowScripts))
}
