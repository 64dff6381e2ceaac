-- fence.unpublished_events(lock) → the committed events of the lock that are not published yet.
--
-- It reads no row that was published before, also where an old snapshot keeps the deleted rows: an event is not
-- published if its transaction was still running, or had not begun, in the snapshot of the newest event. A snapshot that
-- is ahead of this server's transactions came with a dump, and is ignored.
create or replace function fence.unpublished_events(p_lock text) returns setof fence.unpublished
language sql stable
as $$
    with newest as materialized (
        select case when pg_snapshot_xmax(e.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()) then e.snapshot end
            as snapshot
        from ( -- ordered so that no index but that on (lock, id) serves, whatever the statistics say
            select o.lock, o.snapshot from fence.events o where (o.lock, o.id) <= (p_lock, 9223372036854775807)
            order by o.lock desc, o.id desc limit 1
        ) e
        where e.lock = p_lock
    )
    select u.* from fence.unpublished u
    where u.lock = p_lock and u.xid >= coalesce((select pg_snapshot_xmax(n.snapshot) from newest n), '0')
    union all
    select u.* from newest n, pg_snapshot_xip(n.snapshot) as running (xid),
        lateral (select * from fence.unpublished o where o.lock = p_lock and o.xid = running.xid offset 0) u
$$;
