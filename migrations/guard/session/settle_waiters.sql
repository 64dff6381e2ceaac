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
    v_count   integer;
    v_waiter  record;
begin
    perform fence.commit_durably();
    select array_agg(u.ticket order by u.ticket), array_agg(u.lock order by u.ticket),
        array_agg(u.scope order by u.ticket)
    into v_tickets, v_locks, v_scopes
    from (
        select w.ticket, w.lock::text, w.scope from fence.waiters w
        where w.session_id = p_session_id and w.ticket > p_after
        order by w.ticket limit p_waiters_max) u;
    if v_tickets is null then
        update fence.sessions s set settled = true
        where s.session_id = p_session_id and s.ended_at is not null
            and not exists (select from fence.leases l where l.session_id = s.session_id and l.ended_at is null);
        return;
    end if;
    v_count := fence.count_within_gates(v_locks, v_scopes, 64);
    last := v_tickets[v_count];
    perform fence.lock_gates(v_locks[1:v_count], v_scopes[1:v_count]);
    for v_waiter in
        select distinct w.gateway_id, w.lock, w.scope from fence.waiters w
        where w.ticket = any (v_tickets[1:v_count]) and w.session_id = p_session_id
    loop
        perform fence.wake_gateway(v_waiter.gateway_id, v_waiter.lock, 0);
        perform fence.wake(v_waiter.lock, v_waiter.scope, 0);
    end loop;
end
$$;
