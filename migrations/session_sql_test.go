package migrations_test

// sessionScripts are about sessions, and about rows that no other call brings about: leases with one token, leases that
// heartbeats have left out, and sessions that end while one is kept alive.
var sessionScripts = []script{
	{"a heartbeat moves the running leases of its session, and no others", `
		A select test.session('A')  -- $s
		A insert into fence.fences (resource, granted_token) values ('beat/a', 1000000000), ('beat/b', 1000000000);
			select test.acquire('beat/a', 'A', '$s')  -- 1000000001
		A select test.acquire('beat/b', 'B')  -- 1000000001
		A select string_agg((a.lease).owner_id, ' ' order by o.owner) from (values ('A', '$s'::uuid), ('B', null)) o (owner, session),
			fence.acquire_lease(fence.lease_request('beat/shared', o.owner, 'shared', 'node', 30000, o.session, null, null), 0, null,
				true) a  -- A B
		A select test.acquire('beat/ended', 'A', '$s')  -- $e
		A select test.release('beat/ended', $e)  -- released
		A update fence.leases set check_at = '-infinity'; select status from fence.keep_alive('$s')  -- live
		A select string_agg(concat_ws(' ', lock, owner_id), ', ' order by lock) from fence.leases
			where check_at = 'infinity'  -- beat/a A, beat/shared A
		A update fence.leases set expires_at = clock_timestamp(), check_at = 'infinity'
			where lock in ('beat/a', 'beat/b') or owner_id = 'B'
		A select status from fence.keep_alive('$s')  -- live
		A select string_agg(concat_ws(' ', lock, owner_id), ', ' order by lock, owner_id) from fence.leases
			where check_at = 'infinity' and ended_at is null  -- beat/b B, beat/shared A, beat/shared B
		A select check_at = expires_at from fence.leases where lock = 'beat/a'  -- t
		A update fence.leases set check_at = '-infinity' where lock = 'beat/a'; select status from fence.keep_alive('$s')  -- live
		A select check_at from fence.leases where lock = 'beat/a'  -- -infinity`},
	{"neither a heartbeat nor the end of a session waits for a waiter that another transaction has locked", `
		A select test.session('A')  -- $s
		A insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, session_until, queued_at,
				deadline_at)
			select l, gen_random_uuid(), 'A', 'exclusive', 'node', 1000, case l when 'skip/other' then null else '$s'::uuid end,
				'2000-01-01', clock_timestamp(), 'infinity'
			from unnest('{skip/1,skip/2,skip/other}'::text[]) l
		B begin; select from fence.waiters where lock = 'skip/1' for update
		A select status from fence.keep_alive('$s')  -- live
		A select string_agg(w.lock, ' ') from fence.waiters w, fence.sessions s
			where w.session_until = s.expires_at  -- skip/2
		A select fence.end_session('$s')  -- released
		A select string_agg(lock, ' ') from fence.waiters where session_until = '-infinity'  -- skip/2
		B rollback`},
	{"the ends of a session wait for each other", `
		A select test.session('A')  -- $s
		B begin; select fence.end_session('$s')  -- released
		A select fence.end_session('$s')  -- waits
		B update fence.sessions set end_reason = 'expired'; commit
		A ...  -- expired`},
	{"a session may have 10,000 leases that run", `
		A select test.session('A')  -- $s
		A insert into fence.leases (lock, fencing_token, lease_id, session_id, ttl_ms, granted_at, expires_at, ended_at, end_reason)
			select format('size/%s', n), n, gen_random_uuid(),
				case when n <= 9999 then '$s' when n <= 10999 then gen_random_uuid() else '$s' end, 1000, now(), now(),
				case when n > 10999 then now() end, case when n > 10999 then 'released' end from generate_series(1, 11999) n
		A select count(fence.check_session_size('$s')) from generate_series(1, 500)  -- 500
		A insert into fence.leases (lock, fencing_token, lease_id, session_id, ttl_ms, granted_at, expires_at)
			values ('size/last', 1, gen_random_uuid(), '$s', 1000, now(), now())
		A select count(fence.check_session_size('$s')) from generate_series(1, 2000)  -- !LF007 about ten thousand`},
	{"a heartbeat and the end of its session wait for each other", `
		A select test.session('A')  -- $s
		B begin; select fence.end_session('$s')  -- released
		A select status from fence.keep_alive('$s')  -- waits
		B commit
		A ...  -- released
		A select test.session('A')  -- $t
		B begin; select status from fence.keep_alive('$t')  -- live
		A select fence.end_session('$t')  -- waits
		B commit
		A ...  -- released
		A select fence.end_session('$t')  -- released
		A select fence.end_session(gen_random_uuid())  -- not_found`},
	{"the end of a session is that of its expiry, if it had expired", `
		A select test.session('A')  -- $s
		A update fence.sessions set expires_at = clock_timestamp() - interval '1 second' where session_id = '$s'
		A select status, late_ms > 20000 from fence.keep_alive('$s')  -- expired|t
		A select fence.end_session('$s')  -- expired
		A select ended_at = expires_at, check_at from fence.sessions where session_id = '$s'  -- t|-infinity
		A select test.session('A')  -- $t
		A select fence.end_session('$t')  -- released
		A select ended_at < expires_at from fence.sessions where session_id = '$t'  -- t`},
	{"the leases of a session that has ended are settled some at a time, and those of others are not", `
		A select test.session('A')  -- $s
		A select test.session('B')  -- $t
		A select test.acquire('settle/b', 'A', '$s')  -- $b
		A select test.release('settle/b', $b), test.acquire('settle/b', 'A', '$s'), test.acquire('settle/a', 'A', '$s'),
			test.acquire('settle/c', 'A', '$s'), test.acquire('settle/d', 'B', '$t')
		A select ended, skipped, last from fence.settle_leases('$s', '', 10, 1000)  -- 0|0|
		A select fence.end_session('$s'); update fence.sessions set check_at = 'infinity'
		A select ended, skipped, last from fence.settle_leases('$t', '', 10, 1000)  -- 0|0|
		A select check_at from fence.sessions where session_id = '$t'  -- infinity
		A set lock_timeout = '7s'; begin; select ended, skipped, last from fence.settle_leases('$s', 'settle/a', 1, 1000)  -- 1|0|settle/b
		A select current_setting('lock_timeout'), check_at < clock_timestamp() from fence.sessions
			where session_id = '$s'  -- 7s|t
		A commit; select ended, last from fence.settle_leases('$s', '', 1, 1000)  -- 1|settle/a
		A select ended, last from fence.settle_leases('$s', 'settle/c', 10, 1000)  -- 0|
		B begin; select from fence.fences where resource = 'settle/c' for update
		A select ended, skipped, last from fence.settle_leases('$s', '', 10, 10)  -- 0|1|settle/c
		B rollback
		A select ended, skipped, last from fence.settle_leases('$s', '', 10, 10)  -- 1|0|settle/c
		A select string_agg(concat_ws(' ', f.resource, case when f.open then 'open' else 'closed' end, l.end_reason), ', '
				order by l.lock, l.fencing_token)
			from fence.leases l join fence.fences f on f.resource = l.lock  -- settle/a closed released, ` +
		`settle/b closed released, settle/b closed released, settle/c closed released, settle/d open`},
	{"a lease that has expired before its session leaves its fence open, and one that ran until its expiry does not", `
		A select test.session('A')  -- $s
		A select test.acquire('over/early', 'A', '$s'), test.acquire('over/last', 'A', '$s')
		A update fence.sessions set expires_at = clock_timestamp(), ended_at = clock_timestamp(), end_reason = 'expired'
			where session_id = '$s'
		A update fence.leases l set expires_at = s.ended_at - case lock when 'over/early' then 1 else 0 end * interval '1 second'
			from fence.sessions s where s.session_id = l.session_id
		A select ended, skipped, last from fence.settle_leases('$s', '', 10, 1000)  -- 1|0|over/last
		A select string_agg(concat_ws(' ', f.resource, case when f.open then 'open' else 'closed' end, l.end_reason), ', '
				order by l.lock)
			from fence.leases l join fence.fences f on f.resource = l.lock  -- over/early open expired, over/last closed expired`},
	{"the leases of others on the locks of a session that has ended go on, and its subtrees wait for calls below", `
		A select test.session('A')  -- $s
		A select test.session('B')  -- $t
		A select string_agg((a.lease).owner_id, ' ' order by o.owner) from (values ('A', '$s'::uuid), ('B', '$t')) o (owner, session),
			fence.acquire_lease(fence.lease_request('both/shared', o.owner, 'shared', 'node', 30000, o.session, null, null), 0, null,
				true) a  -- A B
		A select outcome from fence.acquire_lease(fence.lease_request('both/tree', 'A', 'exclusive', 'subtree', 30000, '$s', null,
			null), 0, null, true)  -- granted
		A select fence.end_session('$s')
		B begin; select fence.take_tree_lock('both/tree/below', 'node')
		A select ended, skipped from fence.settle_leases('$s', '', 10, 10)  -- 0|2
		B commit
		A select ended, skipped from fence.settle_leases('$s', '', 10, 10)  -- 2|0
		A select string_agg(concat_ws(' ', lock, owner_id, end_reason), ', ' order by lock, owner_id)
			from fence.leases  -- both/shared A released, both/shared B, both/tree A released`},
	{"the fences of a session that has ended are locked in the order of their names", `
		A set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off
		A select test.session('A')  -- $s
		A select test.acquire('order/2', 'A', '$s'), test.acquire('order/1', 'A', '$s')
		A select fence.end_session('$s')
		B begin; select from fence.fences where resource = 'order/1' for update
		A select ended from fence.settle_leases('$s', '', 10, 60000)  -- waits
		B select resource from fence.fences where resource = 'order/2' for update nowait  -- order/2
		B rollback
		A ...  -- 2`},
	{"a session is settled when its waiters are out, and its leases over", `
		A select test.session('A')  -- $s
		A select test.acquire('out/a', 'A', '$s')
		A select test.session('B')  -- $t
		A select last from fence.settle_waiters('$t', 0, 10)  --
		A select last from fence.settle_waiters('$s', 0, 10)  --
		A select string_agg(settled::text, ' ') from fence.sessions  -- false false
		A select fence.end_session('$t'); select last from fence.settle_waiters('$t', 0, 10)  --
		A select string_agg(settled::text, ' ' order by owner_id) from fence.sessions  -- false true
		A select fence.end_session('$s'); select last from fence.settle_waiters('$s', 0, 10)  --
		A select settled from fence.sessions where session_id = '$s'  -- f
		A select ended from fence.settle_leases('$s', '', 10, 1000)  -- 1
		A insert into fence.waiters (lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, queued_at, deadline_at)
			select l, gen_random_uuid(), 'A', 'exclusive', 'node', 1000, '$s', clock_timestamp(), 'infinity'
			from unnest('{out/x,out/y,out/z}'::text[]) l; select min(ticket) from fence.waiters  -- $w
		A select last - $w from fence.settle_waiters('$s', 0, 1)  -- 0
		A select last - $w from fence.settle_waiters('$s', $w, 1)  -- 1
		A select last - $w from fence.settle_waiters('$s', 0, 9)  -- 2
		A select settled from fence.sessions where session_id = '$s'  -- f
		A select last is null from fence.settle_waiters('$s', $w + 2, 9)  -- t
		A select settled from fence.sessions where session_id = '$s'  -- t`},
	{"the sweep ends sessions that have expired, the longest overdue first, and forgets the settled", `
		A select test.session('A')  -- $live
		A select test.session('B')  -- $new
		A select test.session('C')  -- $old
		A select test.session('D')  -- $locked
		A update fence.sessions set expires_at = clock_timestamp() - case owner_id when 'B' then 1 else 2 end * interval '1 second',
			check_at = clock_timestamp() - case owner_id when 'B' then 1 else 2 end * interval '1 second' where owner_id <> 'A'
		A update fence.sessions set check_at = clock_timestamp() + interval '1 second' where owner_id = 'A'
		A select test.session('E')  -- $settled
		A update fence.sessions set settled = true, expires_at = clock_timestamp() where session_id = '$settled'
		B begin; select from fence.sessions where session_id = '$locked' for update
		A select done, more, unsettled = array['$old', '$new']::uuid[] from fence.sweep_sessions(10, interval '1 hour')  -- 2|f|t
		B rollback
		A select string_agg(concat_ws(' ', owner_id, end_reason, ended_at = expires_at, check_at = expires_at,
				round(extract(epoch from check_at - clock_timestamp()))), ', ' order by owner_id)
			from fence.sessions where owner_id in ('A', 'B', 'C')  -- A f 1, B expired t f 5, C expired t f 5
		A select ended_at is null from fence.sessions where session_id = '$settled'  -- t
		A delete from fence.sessions where session_id = '$settled'
		A select done, more, unsettled = array['$locked']::uuid[] from fence.sweep_sessions(1, interval '1 hour')  -- 1|t|t
		A update fence.sessions set settled = true, ended_at = clock_timestamp() - interval '2 hours' where owner_id in ('B', 'C');
			update fence.sessions set ended_at = clock_timestamp() - interval '2 hours' where owner_id = 'D'
		A update fence.sessions set ended_at = clock_timestamp() - interval '3 hours' where owner_id = 'C'
		B begin; select from fence.sessions where owner_id = 'C' for update
		A select more from fence.sweep_sessions(9, interval '150 minutes'); select count(*) from fence.sessions  -- 4
		B rollback
		A select more from fence.sweep_sessions(1, interval '1 hour')  -- t
		A select string_agg(owner_id, ' ' order by owner_id) from fence.sessions  -- A B D
		A select more from fence.sweep_sessions(9, interval '3 hours'); select count(*) from fence.sessions  -- 3
		A select more from fence.sweep_sessions(9, interval '1 hour');
			select string_agg(owner_id, ' ' order by owner_id) from fence.sessions  -- A D`},
	{"what is acknowledged of a session is on disk", durably(
		"select fence.create_session('A', 1000, null, 'p')", "select fence.end_session(gen_random_uuid())",
		"select fence.settle_leases(gen_random_uuid(), '', 1, 1)", "select fence.settle_waiters(gen_random_uuid(), 0, 1)")},
}
