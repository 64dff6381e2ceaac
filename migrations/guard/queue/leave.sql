-- fence.leave(gateway_id, tickets) takes waiters of a gateway out of their queues, and wakes the waiters that they
-- blocked. → how many there were; the others were granted a lease, or another gateway has taken over their ticket.
--
-- The tree locks and the fences are locked first: of two waiters that leave one queue at the same time, the later must
-- see that the earlier is gone. Otherwise each would wake the other only.
create or replace function fence.leave(p_gateway_id uuid, p_tickets bigint[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_locks  text[];
    v_scopes text[];
    v_waiter fence.waiters;
    v_left   bigint := 0;
begin
    perform set_config('synchronous_commit', 'off', true);
    select array_agg(w.lock), array_agg(w.scope) into v_locks, v_scopes
    from fence.waiters w where w.ticket = any (p_tickets) and w.gateway_id = p_gateway_id;
    perform fence.take_tree_locks(v_locks, v_scopes);
    perform from fence.fences f where f.resource = any (v_locks) order by f.resource for update;
    for v_waiter in
        with gone as (
            delete from fence.waiters w where w.ticket = any (p_tickets) and w.gateway_id = p_gateway_id returning w.*
        )
        select * from gone order by lock, ticket
    loop
        v_left := v_left + 1;
        perform fence.wake(v_waiter.lock, v_waiter.scope, 0);
        perform fence.note_change(v_waiter.lock);
    end loop;
    return v_left;
end
$$;
