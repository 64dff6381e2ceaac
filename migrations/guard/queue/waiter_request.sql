-- fence.waiter_request(waiter) → what the waiter requests, see fence.lease_request.
create or replace function fence.waiter_request(p_waiter fence.waiters) returns fence.leases
language plpgsql stable
as $$
begin
    return fence.lease_request(p_waiter.lock, p_waiter.owner_id, p_waiter.mode, p_waiter.scope, p_waiter.ttl_ms,
        p_waiter.session_id, p_waiter.request_id, p_waiter.metadata, p_waiter.principal);
end
$$;
