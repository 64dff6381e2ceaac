-- fence.next_due(gateway_id, locks, tickets) → those of these locks on which the gateway should call fence.grant_next.
-- Each comes with the gateway's first ticket in its queue. Either it may be the ticket's turn: no waiter ahead and no
-- running lease conflicts, or the policy says by now that another lock service issues the tokens. Or the ticket is not
-- in the queue any more (here is false). This covers lost notifications, and a gateway ahead in the queue that died.
--
-- If another gateway has taken over the ticket and waits with it, the request was sent again through that one. Then the
-- gateway's next ticket is looked at instead.
create or replace function fence.next_due(p_gateway_id uuid, p_locks text[], p_tickets bigint[])
returns table (lock text, here boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_queue  record;
    v_waiter fence.waiters;
begin
    for v_queue in select * from unnest(p_locks, p_tickets) as u (lock, ticket) loop
        select * into v_waiter from fence.waiters w where w.ticket = v_queue.ticket;
        lock := v_queue.lock;
        if v_waiter.gateway_id <> p_gateway_id and fence.is_waiting(v_waiter) then
            select * into v_waiter from fence.waiters w
            where w.lock = v_queue.lock and w.gateway_id = p_gateway_id order by w.ticket limit 1;
            continue when not found;
        end if;
        here := coalesce(v_waiter.gateway_id = p_gateway_id, false);
        if not here
            or fence.has_external_tokens(lock)
            or not fence.must_queue(v_waiter.lock, v_waiter.mode, v_waiter.scope, v_waiter.ticket)
                and not exists (
                    select from fence.conflicting_leases(v_waiter.lock, v_waiter.mode, v_waiter.scope) l
                    where fence.runs_until(l) > clock_timestamp())
        then
            return next;
        end if;
    end loop;
end
$$;
