-- fence.gateway_channel(gateway_id) → the channel on which the gateway is notified of its waiters.
create or replace function fence.gateway_channel(p_gateway_id uuid) returns text
language sql immutable parallel safe
as $$
    select 'fence_' || replace(p_gateway_id::text, '-', '')
$$;
