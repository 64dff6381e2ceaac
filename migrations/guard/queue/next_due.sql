-- fence.next_due(gateway_id, locks, tickets) → of these locks, each with the gateway's first ticket in its line, those where it may be the
-- ticket's turn: it is not behind anybody and no lease that runs is in the way, or the policy says by now that another lock service
-- issues the tokens; and those where it is in the line no more (here is false). The net below the notifications: one that was lost, or a gateway before it in the line that died.
--
-- A place that another gateway has taken over, and that waits there, is that one's: the request was sent again. The gateway's next one
-- is looked at instead.
create or replace function fence.next_due(p_gateway_id uuid, p_locks text[], p_tickets bigint[])
returns table (lock text, here boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_asked  record;
    v_waiter fence.waiters;
    v_policies boolean := exists (select from fence.policies);
begin
    for v_asked in select * from unnest(p_locks, p_tickets) as u (lock, ticket) loop
        select * into v_waiter from fence.waiters w where w.ticket = v_asked.ticket;
        lock := v_asked.lock;
        if v_waiter.gateway_id <> p_gateway_id and fence.is_waiting(v_waiter) then
            select * into v_waiter from fence.waiters w
            where w.lock = v_asked.lock and w.gateway_id = p_gateway_id order by w.ticket limit 1;
            continue when not found;
        end if;
        here := coalesce(v_waiter.gateway_id = p_gateway_id, false);
        if not here
            or v_policies and exists (select from fence.policy_for(lock) p where p.authority = 'external')
            or not (fence.must_queue(v_waiter.lock, v_waiter.mode, v_waiter.scope, v_waiter.ticket)
            or exists (
                select from fence.conflicting_leases(v_waiter.lock, v_waiter.mode, v_waiter.scope) r
                where fence.runs_until(r) > clock_timestamp()))
        then
            return next;
        end if;
    end loop;
end
$$;
