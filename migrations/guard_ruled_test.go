package migrations_test

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
		A select fence.guard('same/a', $t, 4)  -- !LF106
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
		A select fence.guard('id', $t, 1)  -- !LF104
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
	{"repeatable read: a longer hold since the snapshot is 40001, not LF103", `
		A insert into fence.policies (prefix, max_hold_ms) values ('longer', 600000)
		A select test.grant('longer')  -- $t
		A update fence.leases set hold_until = clock_timestamp() where lock = 'longer';
			begin isolation level repeatable read; select 1
		B update fence.leases set hold_until = clock_timestamp() + interval '10 min' where lock = 'longer'
		A select fence.guard('longer', $t, 1)  -- !40001
		A rollback; begin isolation level repeatable read; select fence.guard('longer', $t, 1)  -- t`},
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
	{"max_hold", `
		A insert into fence.policies (prefix, max_hold_ms) values ('hold', 600000)
		A select test.grant('hold')  -- $t
		A select fence.guard('hold', $t, 1)  -- t
		A update fence.leases set hold_until = clock_timestamp(), expires_at = clock_timestamp() where lock = 'hold'
		A select fence.guard('hold', $t, 2)  -- !LF103 "reason":"max_hold"`},
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
