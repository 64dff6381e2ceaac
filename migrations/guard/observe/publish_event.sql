-- fence.publish_event(event) keeps an event of a watched lock, with an id and the time, and notifies the gateways.
--
-- Invariant: events of one lock become visible in the order of their ids, so that a reader who has seen one has
-- seen all before it. An id is given with the lock's key held until the commit. Nothing else is waited for after it, but for another
-- lock's key, and many are taken in the order of names.
create or replace function fence.publish_event(p_event fence.events) returns void
language plpgsql
as $$
begin
    perform pg_advisory_xact_lock(1718511206, hashtext(p_event.lock));
    insert into fence.events (lock, kind, at, owner_id, fencing_token, mode, scope, expires_at, reason, code, key)
    values (p_event.lock, p_event.kind, clock_timestamp(), p_event.owner_id, p_event.fencing_token, p_event.mode, p_event.scope,
        p_event.expires_at, p_event.reason, p_event.code, p_event.key);
    perform pg_notify('fence_events', p_event.lock);
end
$$;
