-- fence.sweep_waiting(events_age, events_max) forgets what is left of waiting and watching: gateways that were not heard of for a minute,
-- and their waiters; waiters whose time was over a minute ago; watches that lapsed; events by age and by number, after which
-- no watch is resumed from before them. None of it counts any more, with or without a sweep.
create or replace function fence.sweep_waiting(p_events_age interval, p_events_max bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from fence.gateways g where g.alive_until < clock_timestamp() - interval '1 minute';
    delete from fence.waiters w
    where w.deadline_at < clock_timestamp() - interval '1 minute'
        or not exists (select from fence.gateways g where g.gateway_id = w.gateway_id);

    delete from fence.watched w
    where w.until < clock_timestamp() - p_events_age;
    with old as (
        select e.id from fence.events e
        where e.at < clock_timestamp() - p_events_age or e.id <= (select max(n.id) from fence.events n) - p_events_max
        order by e.id limit 10000 for update skip locked
    ), forgotten as (
        delete from fence.events e using old where e.id = old.id returning e.lock, e.id
    )
    update fence.watched w set since = greatest(w.since, f.id)
    from (select lock, max(id) as id from forgotten group by lock) f
    where w.lock = f.lock;
end
$$;
