-- fence.enqueue(asked, wait_ms, gateway_id) → one row: outcome queued and the ticket; or deadlock and the cycle that the wait would
-- close; or again.
--
-- The caller has locked the fence, so that tickets of a lock are in the order in which they are seen. Invariant: of two waits
-- that together close a cycle, the later one sees the earlier. Only an owner who has a lease or waits elsewhere can close one: he
-- searches alone; the others put themselves into the line side by side. Whoever was granted something between the two looks
-- starts again.
create or replace function fence.enqueue(
    p_asked fence.leases, p_wait_ms integer, p_gateway_id uuid, out outcome text, out ticket bigint, out cycle json)
language plpgsql
as $$
declare
    v_waited_for boolean := fence.is_waited_for(p_asked.owner_id);
    v_now        timestamptz;
begin
    if v_waited_for then
        perform pg_advisory_xact_lock(1718511207, 0);
        cycle := fence.wait_cycle(p_asked.owner_id, p_asked.lock, p_asked.mode, p_asked.scope);
        if cycle is not null then
            outcome := 'deadlock';
            return;
        end if;
    else
        perform pg_advisory_xact_lock_shared(1718511207, 0);
        if fence.is_waited_for(p_asked.owner_id) then
            outcome := 'again';
            return;
        end if;
    end if;

    outcome := 'queued';
    v_now := clock_timestamp();
    insert into fence.waiters (
        lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata, queued_at, deadline_at)
    values (
        p_asked.lock, p_gateway_id, p_asked.owner_id, p_asked.mode, p_asked.scope, p_asked.ttl_ms, p_asked.session_id,
        p_asked.request_id, p_asked.metadata, v_now, v_now + p_wait_ms * interval '1 millisecond')
    returning waiters.ticket into ticket;
    perform fence.tell(p_asked, 'queued');
end
$$;
