-- fence.watch_state(lock) → since, after which the events of the watched lock are complete; newest, after which its
-- next event will come; key, by which it is notified of events (fence.publish_event). All are null if it is not watched. Read the lock after this, in the same transaction: while its
-- fence is locked no grant, release or break comes between the two. Those before are published here. The caller commits
-- at once.
create or replace function fence.watch_state(p_lock text, out since bigint, out newest bigint, out key uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences := fence.lock_fence(p_lock);
begin
    if greatest(v_fence.granted_token, v_fence.last_token) = 0 then
        perform fence.note_unused(array[p_lock]);
    end if;
    perform from fence.watched w where w.lock = p_lock for update; -- of gateways that publish at this moment
    while cardinality(fence.publish_events(array[p_lock], 5000)) > 0 loop
    end loop;
    select w.since, greatest(w.since, (select max(e.id) from fence.events e where e.lock = p_lock)), w.key
    into since, newest, key
    from fence.watched w where w.lock = p_lock and w.until > clock_timestamp();
end
$$;
