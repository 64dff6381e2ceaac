-- fence.settle_leases(session_id, after, locks_max, wait_ms) ends leases of a session that has ended, on at most
-- locks_max locks, the first ones after the name after. → ended: how many of them ran until then; skipped: the number of
-- locks on which nothing was ended, because something was locked for longer than wait_ms; last: the last of those locks,
-- null if there is none left.
--
-- Their fences are closed: the session's end releases its leases, also if it expired. A lease that ended before that has
-- expired by itself, and its fence stays open. Any number of callers may settle one session at once.
create or replace function fence.settle_leases(
    p_session_id uuid, p_after text, p_locks_max integer, p_wait_ms integer, out ended bigint, out skipped integer,
    out last text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_timeout text := current_setting('lock_timeout');
    v_locks   text[];
    v_scopes  text[];
    v_lease   fence.leases;
    v_over    timestamptz := (select s.ended_at from fence.sessions s where s.session_id = p_session_id);
begin
    perform fence.commit_durably();
    ended := 0;
    skipped := 0;
    select array_agg(u.lock order by u.lock collate "C"), array_agg(u.scope order by u.lock collate "C")
    into v_locks, v_scopes
    from (
        select l.lock, max(l.scope) as scope -- subtree, if any is
        from fence.leases l, fence.sessions s
        where l.session_id = p_session_id and l.lock > p_after and l.ended_at is null
            and s.session_id = l.session_id and s.ended_at is not null
        group by l.lock order by l.lock limit p_locks_max) u;
    last := v_locks[cardinality(v_locks)];

    perform set_config('lock_timeout', p_wait_ms::text, true);
    begin
        perform fence.take_tree_locks(v_locks, v_scopes);
        perform from fence.fences f where f.resource = any (v_locks) order by f.resource for update;
        for v_lease in
            select * from fence.end_leases(array(
                select row(l.lock, l.fencing_token,
                    case when l.expires_at <= s.ended_at then 'expired' else s.end_reason end)::fence.lease_end
                from fence.leases l join fence.sessions s on s.session_id = l.session_id
                where l.session_id = p_session_id and l.lock = any (v_locks) and l.ended_at is null))
        loop
            if v_lease.expires_at >= v_over then
                ended := ended + 1;
                perform fence.close_fence(v_lease.lock, v_lease.fencing_token);
            end if;
            perform fence.wake(v_lease.lock, v_lease.scope, 0);
        end loop;
    exception when lock_not_available or deadlock_detected or out_of_memory then -- out of room in the lock table, too
        ended := 0;
        skipped := cardinality(v_locks);
    end;
    if ended > 0 then -- a sweep that has no time for all of them goes on at once
        update fence.sessions s set check_at = clock_timestamp() where s.session_id = p_session_id;
    end if;
    -- The commit waits for the commits of other notifications: PostgreSQL has one lock for all of them.
    perform set_config('lock_timeout', v_timeout, true);
end
$$;

-- fence.settle_waiters(session_id, after, waiters_max) notifies the gateways of waiters of an ended session, at most
-- waiters_max, the first ones after the ticket after. They take them out of the queue. The gateways of the waiters
-- behind them are notified, too. → last: the ticket of the last of them; null if there is none left, and then the
-- session is marked as settled if all of its leases have ended (fence.settle_leases).
create or replace function fence.settle_waiters(
    p_session_id uuid, p_after bigint, p_waiters_max integer, out last bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set lock_timeout = '500ms'
as $$
declare
    v_tickets bigint[];
    v_locks   text[];
    v_scopes  text[];
    v_waiter  record;
begin
    perform fence.commit_durably();
    select array_agg(u.ticket order by u.ticket), array_agg(u.lock order by u.ticket),
        array_agg(u.scope order by u.ticket)
    into v_tickets, v_locks, v_scopes
    from (
        select w.ticket, w.lock, w.scope from fence.waiters w
        where w.session_id = p_session_id and w.ticket > p_after
        order by w.ticket limit p_waiters_max) u;
    if v_tickets is null then
        update fence.sessions s set settled = true
        where s.session_id = p_session_id and s.ended_at is not null
            and not exists (select from fence.leases l where l.session_id = s.session_id and l.ended_at is null);
        return;
    end if;
    last := v_tickets[cardinality(v_tickets)];
    perform fence.take_tree_locks(v_locks, v_scopes);
    for v_waiter in
        select distinct w.gateway_id, w.lock, w.scope from fence.waiters w
        where w.ticket = any (v_tickets) and w.session_id = p_session_id
    loop
        perform fence.wake_gateway(v_waiter.gateway_id, v_waiter.lock, 0);
        perform fence.wake(v_waiter.lock, v_waiter.scope, 0);
        perform fence.note_change(v_waiter.lock);
    end loop;
end
$$;

-- fence.sweep_sessions(rows_max, retention) → done: the number of expired sessions that were ended; more; unsettled:
-- those whose leases must be ended now (fence.settle_leases), the longest overdue first; if that fails, they are due
-- again in five seconds. Deletes sessions that were settled before the retention. See fence.sweep, and fence.sweep_leases
-- about check_at.
create or replace function fence.sweep_sessions(
    p_rows_max integer, p_retention interval, out done bigint, out more boolean, out unsettled uuid[])
language plpgsql
as $$
declare
    v_now    timestamptz := clock_timestamp();
    v_before timestamptz := v_now - p_retention;
    v_due    uuid[];
    v_old    bigint;
begin
    v_due := array(
        select s.session_id from fence.sessions s
        where not s.settled and s.check_at <= v_now
        order by s.check_at limit p_rows_max for update skip locked);
    update fence.sessions s set check_at = s.expires_at
    where s.session_id = any (v_due) and s.ended_at is null and s.expires_at > v_now;
    update fence.sessions s set ended_at = s.expires_at, end_reason = 'expired'
    where s.session_id = any (v_due) and s.ended_at is null and s.expires_at <= v_now;
    get diagnostics done = row_count;
    unsettled := array(
        select s.session_id from fence.sessions s where s.session_id = any (v_due) and s.ended_at is not null
        order by s.check_at);
    update fence.sessions s set check_at = v_now + interval '5 seconds' where s.session_id = any (unsettled);

    with old as (
        select s.session_id from fence.sessions s
        where s.settled and s.ended_at < v_before order by s.ended_at limit p_rows_max for update skip locked
    )
    delete from fence.sessions s using old where s.session_id = old.session_id;
    get diagnostics v_old = row_count;
    more := p_rows_max in (cardinality(v_due), v_old);
end
$$;
