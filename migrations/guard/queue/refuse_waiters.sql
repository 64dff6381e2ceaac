-- fence.refuse_waiters(gateway_id, lock, scope) takes the gateway's waiters out of the queue, because the lock has come
-- under the authority of another lock service, and wakes the waiters that they blocked. → the rows of fence.grant_next,
-- with the outcome external; at most 500, and then one with more.
--
-- The caller has locked the fence.
create or replace function fence.refuse_waiters(p_gateway_id uuid, p_lock text, p_scope text)
returns table (outcome text, ticket bigint, lease fence.leases, reason text, left_ms bigint)
language plpgsql
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    return query
    with chosen as (
        select w.ticket from fence.waiters w
        where w.lock = p_lock and w.gateway_id = p_gateway_id and (w.scope = 'node' or p_scope = 'subtree')
        order by w.ticket limit 500 for update
    ), refused as (
        delete from fence.waiters w using chosen c where w.ticket = c.ticket returning w.*
    )
    select 'external', r.ticket, fence.waiter_request(row(r.*)::fence.waiters), null::text, null::bigint
    from refused r;
    return query
    select 'more', 0::bigint, null::fence.leases, null::text, null::bigint
    where exists (
        select from fence.waiters w
        where w.lock = p_lock and w.gateway_id = p_gateway_id and (w.scope = 'node' or p_scope = 'subtree'));
    perform fence.wake(p_lock, p_scope, 0);
end
$$;
