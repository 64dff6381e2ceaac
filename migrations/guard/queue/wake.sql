-- fence.wake(lock, scope, ms, gateway_id) notifies the gateways of the waiters whose turn it may be, after a lease on the
-- lock has ended or a waiter has left the queue; it sends nothing if nobody waits. These are the first in the queue, and
-- if that is a reader, all readers up to the first writer. A lease with the scope subtree may have blocked waiters below;
-- any lease may have blocked waiters for a subtree above.
--
-- ms  0: call fence.grant_next now; more: in so many milliseconds, when the
-- lease that was just granted will expire, unless another notification comes before.
--
-- gateway_id  is the caller's, which knows of the waiters for this lock without a notification; null: no gateway does.
create or replace function fence.wake(p_lock text, p_scope text, p_ms bigint, p_gateway_id uuid default null)
returns void
language plpgsql
set enable_bitmapscan = off -- it would sort the whole queue for its first
as $$
declare
    v_first  fence.waiters;
    v_writer bigint;
    v_next   record;
begin
    select * into v_first from fence.live_waiters() w where w.lock = p_lock order by w.ticket limit 1;
    if found and v_first.mode = 'exclusive' then
        if v_first.gateway_id is distinct from p_gateway_id then
            perform fence.wake_gateway(v_first.gateway_id, p_lock, p_ms);
        end if;
    elsif found then
        v_writer := (
            select w.ticket from fence.live_waiters() w where w.lock = p_lock and w.mode = 'exclusive'
            order by w.ticket limit 1);
        for v_next in
            select g.gateway_id from fence.gateways g
            where g.alive_until > clock_timestamp() and g.gateway_id is distinct from p_gateway_id and exists (
                select from fence.waiters w
                where w.lock = p_lock and w.gateway_id = g.gateway_id
                    and w.ticket < coalesce(v_writer, 9223372036854775807))
        loop
            perform fence.wake_gateway(v_next.gateway_id, p_lock, p_ms);
        end loop;
    end if;

    if p_scope = 'node' and not fence.has_subtrees(p_lock) then
        return;
    end if;
    for v_next in
        select w.lock, w.gateway_id from fence.live_waiters() w
        where w.lock = any (fence.ancestors(p_lock)) and w.scope = 'subtree'
        union
        select w.lock, w.gateway_id from fence.live_waiters() w
        where p_scope = 'subtree' and fence.is_below(w.lock, p_lock)
    loop
        perform fence.wake_gateway(v_next.gateway_id, v_next.lock, p_ms);
    end loop;
end
$$;

-- fence.gateway_channel(gateway_id) → the channel on which the gateway is notified of its waiters (fence.wake_gateway).
-- Every role can listen on it, and learn it from a notification that it sends itself (trace_notify). So it does not show
-- the gateway_id.
create or replace function fence.gateway_channel(p_gateway_id uuid) returns text
language sql immutable parallel safe
as $$
    select 'fence_' || left(encode(sha256(uuid_send(p_gateway_id)), 'hex'), 32)
$$;

-- fence.wake_gateway(gateway_id, lock, ms) notifies a gateway of its waiters for the lock, see fence.wake. The payload
-- names the lock to that gateway alone (P15): it is a hash of the lock and of the gateway_id, which is a secret.
create or replace function fence.wake_gateway(p_gateway_id uuid, p_lock text, p_ms bigint) returns void
language sql
as $$
    select pg_notify(fence.gateway_channel(p_gateway_id), p_ms || ' '
        || left(encode(sha256(uuid_send(p_gateway_id) || convert_to(p_lock, 'UTF8')), 'hex'), 32))
$$;
