-- fence.publish_event(event) stores an event of a watched lock, with an id and the time, and notifies the gateways.
--
-- Invariant: events of one lock become visible in the order of their ids, so a reader that has seen one has seen all
-- before it. The id is given while the lock's key is held, until the commit. After that nothing is waited for but
-- another lock's key, and several keys are taken in the order of names.
create or replace function fence.publish_event(p_event fence.events) returns void
language plpgsql
as $$
begin
    perform pg_advisory_xact_lock(1718511206, hashtext(p_event.lock));
    insert into fence.events (lock, kind, at, owner_id, fencing_token, mode, scope, expires_at, reason, code, key)
    values (p_event.lock, p_event.kind, clock_timestamp(), p_event.owner_id, p_event.fencing_token, p_event.mode,
        p_event.scope,
        p_event.expires_at, p_event.reason, p_event.code, p_event.key);
    perform pg_notify('fence_events', p_event.lock);
end
$$;
