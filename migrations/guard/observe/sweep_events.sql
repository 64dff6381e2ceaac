-- fence.sweep_events(rows_max, age, count_max) → done: the number of events deleted, by age and by number; more. No
-- watch resumes from before them. See fence.sweep.
--
-- Reads from the oldest event on, and no further than the first that stays.
create or replace function fence.sweep_events(
    p_rows_max integer, p_age interval, p_count_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_age;
    v_newest bigint;
    v_from   bigint;
    v_locks  text[];
    v_ids    bigint[];
begin
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
