-- fence.sweep_events(pause, age, count_max, rows_max) → done: the number of events deleted, by age and by number; more.
-- No watch resumes from before them. See fence.sweep_turn.
--
-- Reads from the oldest event on, and no further than the first that stays.
create or replace function fence.sweep_events(
    p_pause interval, p_age interval, p_count_max bigint, p_rows_max integer, out done bigint, out more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set lock_timeout = '500ms'
as $$
declare
    v_before timestamptz := clock_timestamp() - p_age;
    v_newest bigint;
    v_from   bigint;
    v_locks  text[];
    v_ids    bigint[];
begin
    done := 0;
    more := false;
    if not fence.sweep_turn('events', p_pause) then
        return;
    end if;
    v_newest := (select max(e.id) from fence.events e);
    v_from := greatest(
        v_newest - p_count_max + 1,
        coalesce((
            select o.id from (select e.id, e.at from fence.events e order by e.id limit p_rows_max) o
            where o.at >= v_before order by o.id limit 1), v_newest + 1));
    with old as (
        select e.id from fence.events e where e.id < v_from order by e.id limit p_rows_max for update skip locked
    ), deleted as (
        delete from fence.events e using old where e.id = old.id returning e.lock, e.id
    ), newest as (
        select d.lock, max(d.id) as id, count(*) as deleted from deleted d group by d.lock
    )
    select array_agg(n.lock order by n.lock collate "C"), array_agg(n.id order by n.lock collate "C"),
        coalesce(sum(n.deleted), 0)
    into v_locks, v_ids, done from newest n;
    more := done = p_rows_max;
    perform from fence.watched w where w.lock = any (v_locks) order by w.lock for update;
    update fence.watched w set since = greatest(w.since, f.id)
    from unnest(v_locks, v_ids) as f (lock, id)
    where w.lock = f.lock;
end
$$;
