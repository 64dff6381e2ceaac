-- fence.note_change(lock) notifies the gateways after the commit that a lock has changed, if it is watched; otherwise it
-- costs one look-up. They read the lock then. The payload names the lock to those that watch it: every role can listen
-- (P15). It waits for nothing.
--
-- A grant, an end of a lease, and a waiter that comes or leaves are changes; a renewal is none.
create or replace function fence.note_change(p_lock text) returns void
language plpgsql
as $$
begin
    perform pg_notify('fence_changes', w.key::text) from fence.watched w
    where w.lock = p_lock and w.until > clock_timestamp();
end
$$;

-- fence.begin_watch(locks, lasts_ms) has the gateways notified of changes of these locks from now on, for so long: call
-- it again before that. → for each lock its key (fence.note_change), which stays until the watch has lapsed. A
-- transaction that was under way may not have seen it: its change is found by polling.
create or replace function fence.begin_watch(p_locks text[], p_lasts_ms integer) returns table (lock text, key uuid)
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select set_config('synchronous_commit', 'off', true);
    insert into fence.watched as w (lock, until)
    select l.lock, clock_timestamp() + p_lasts_ms * interval '1 millisecond'
    from unnest(p_locks) as l (lock)
    order by l.lock collate "C"
    on conflict (lock) do update set until = greatest(w.until, excluded.until)
    returning w.lock::text, w.key
$$;
