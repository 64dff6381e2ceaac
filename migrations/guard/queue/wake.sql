-- fence.wake(lock, scope, ms) notifies the gateways of those whose turn it may be, now that a lease on the lock has ended, or somebody
-- has left the line; and of nobody where nobody waits. The first of the line, and if that is a reader, all readers up to the first writer. A lease of
-- scope subtree may have been in the way of those below; and any lease, in the way of those who wait for a subtree above.
--
-- Each gateway listens on a channel of its own. ms  0: try to claim now; more: in so many milliseconds, when the lease that was just
-- granted will run out, unless another notification comes before that.
create or replace function fence.wake(p_lock text, p_scope text, p_ms bigint) returns void
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
        perform pg_notify(fence.gateway_channel(v_first.gateway_id), p_ms || ' ' || p_lock);
    elsif found then
        v_writer := (
            select w.ticket from fence.live_waiters() w where w.lock = p_lock and w.mode = 'exclusive' order by w.ticket limit 1);
        for v_next in
            select g.gateway_id from fence.gateways g
            where g.alive_until > clock_timestamp() and exists (
                select from fence.waiters w
                where w.lock = p_lock and w.gateway_id = g.gateway_id and w.ticket < coalesce(v_writer, 9223372036854775807))
        loop
            perform pg_notify(fence.gateway_channel(v_next.gateway_id), p_ms || ' ' || p_lock);
        end loop;
    end if;

    if not exists (select from fence.subtrees) then
        return;
    end if;
    for v_next in
        select w.lock, w.gateway_id from fence.live_waiters() w
        where position('/' in p_lock) > 0 and w.lock = any (fence.ancestors(p_lock)) and w.scope = 'subtree'
        union
        select w.lock, w.gateway_id from fence.live_waiters() w
        where p_scope = 'subtree' and w.lock > p_lock || '/' and w.lock < p_lock || '0'
    loop
        perform pg_notify(fence.gateway_channel(v_next.gateway_id), p_ms || ' ' || v_next.lock);
    end loop;
end
$$;
