-- fence.settle(session_id, locks_max) → how many leases of a session that has ended were ended with it, and whether that were all.
-- Their fences are closed: the session's end releases its leases, also where it comes by expiry. Its waiters
-- leave their lines: their gateways are woken. Any number may settle one session at once.
create or replace function fence.settle(p_session_id uuid, p_locks_max integer, out ended bigint, out done boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_locks  text[];
    v_gates  text[];
    v_scopes text[];
    v_lease  fence.leases;
    v_waiter record;
begin
    ended := 0;
    v_locks := array(
        select distinct l.lock from fence.leases l, fence.sessions s
        where l.session_id = p_session_id and l.ended_at is null and s.session_id = l.session_id and s.ended_at is not null
        order by l.lock limit p_locks_max);
    select array_agg(u.lock), array_agg(u.scope) into v_gates, v_scopes
    from (
        select l.lock::text, l.scope from fence.leases l where l.session_id = p_session_id and l.lock = any (v_locks) and l.ended_at is null
        union
        select w.lock, w.scope from fence.waiters w where w.session_id = p_session_id) u;
    perform fence.gates(v_gates, v_scopes);
    perform from fence.subtrees s where s.name = any (v_locks) order by s.name for update;
    perform from fence.fences f where f.resource = any (v_locks) order by f.resource for update;

    for v_lease in
        with over as (
            update fence.leases l set ended_at = least(s.ended_at, l.hold_until),
                end_reason = case when l.hold_until <= s.ended_at then 'max_hold' else s.end_reason end
            from fence.sessions s
            where l.session_id = p_session_id and l.lock = any (v_locks) and l.ended_at is null and s.session_id = l.session_id
            returning l.*
        )
        select * from over o order by o.lock, o.fencing_token
    loop
        ended := ended + (v_lease.end_reason <> 'max_hold')::integer;
        perform fence.close_fence(v_lease.lock, v_lease.fencing_token);
        perform fence.tell(v_lease, case v_lease.end_reason when 'max_hold' then 'expired' else v_lease.end_reason end,
            case v_lease.end_reason when 'max_hold' then 'max_hold' end);
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;

    for v_waiter in select distinct w.gateway_id, w.lock, w.scope from fence.waiters w where w.session_id = p_session_id loop
        perform pg_notify(fence.channel(v_waiter.gateway_id), '0 ' || v_waiter.lock);
        perform fence.wake(v_waiter.lock, v_waiter.scope, 0);
    end loop;

    done := cardinality(v_locks) < p_locks_max;
    if done then
        update fence.sessions s set settled = true where s.session_id = p_session_id and s.ended_at is not null;
    end if;
end
$$;
