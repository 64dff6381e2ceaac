-- fence.begin_watch(locks, lasts_ms) has the events of these locks kept from now on, for so long: call it again before
-- that. Events are complete after the id since; if the watch had lapsed, that is now.
--
-- A transaction that was under way when this committed may not have seen it. It has ended once the fence is locked
-- (fence.watch_state).
create or replace function fence.begin_watch(p_locks text[], p_lasts_ms integer) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select set_config('synchronous_commit', 'off', true);
    insert into fence.watched as w (lock, until)
    select l.lock, clock_timestamp() + p_lasts_ms * interval '1 millisecond'
    from unnest(p_locks) as l (lock)
    order by l.lock collate "C"
    on conflict (lock) do update
    set until = greatest(w.until, excluded.until),
        since = case when w.until > clock_timestamp() then w.since else excluded.since end
$$;
