-- fence.gateway_channel(gateway_id) → the channel on which the gateway is notified of its waiters (fence.wake_gateway).
-- Every role can listen on it, and learn it from a notification that it sends itself (trace_notify). So it does not show
-- the gateway_id.
create or replace function fence.gateway_channel(p_gateway_id uuid) returns text
language sql immutable parallel safe
as $$
    select 'fence_' || left(encode(sha256(uuid_send(p_gateway_id)), 'hex'), 32)
$$;
