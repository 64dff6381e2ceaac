-- fence.enqueue(request, wait_ms, gateway_id) → the ticket of a new waiter at the end of the queue.
--
-- The caller has locked the fence, so the tickets of a lock become visible in their order. Whether the wait closes a
-- cycle is checked after the commit (fence.find_new_deadlocks): here every concurrent enqueue would have to see it.
create or replace function fence.enqueue(p_request fence.leases, p_wait_ms integer, p_gateway_id uuid) returns bigint
language plpgsql
as $$
declare
    v_now    timestamptz := clock_timestamp();
    v_ticket bigint;
begin
    insert into fence.waiters as w (
        lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata, principal, queued_at,
        deadline_at)
    values (
        p_request.lock, p_gateway_id, p_request.owner_id, p_request.mode, p_request.scope, p_request.ttl_ms,
        p_request.session_id,
        p_request.request_id, p_request.metadata, p_request.principal, v_now, v_now + p_wait_ms * interval '1 millisecond')
    returning w.ticket into v_ticket;
    perform fence.publish_lease_event(p_request, 'queued');
    return v_ticket;
end
$$;
