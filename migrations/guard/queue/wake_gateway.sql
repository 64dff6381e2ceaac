-- fence.wake_gateway(gateway_id, lock, ms) notifies a gateway of its waiters for the lock, see fence.wake. The payload
-- names the lock to that gateway alone (P15): it is a hash of the lock and of the gateway_id, which is a secret.
create or replace function fence.wake_gateway(p_gateway_id uuid, p_lock text, p_ms bigint) returns void
language sql
as $$
    select pg_notify(fence.gateway_channel(p_gateway_id), p_ms || ' '
        || left(encode(sha256(uuid_send(p_gateway_id) || convert_to(p_lock, 'UTF8')), 'hex'), 32))
$$;
