-- fence.sweep_waiting(rows_max, watched_age) → done: the number of rows deleted; more. Deletes waiters whose deadline
-- passed a minute ago or whose gateway is gone, watches that lapsed watched_age ago, and unpublished events of locks that
-- nobody watches. See fence.sweep. None of them counts any more. Reads all waiters, watches and unpublished events.
create or replace function fence.sweep_waiting(
    p_rows_max integer, p_watched_age interval, out done bigint, out more boolean)
language plpgsql
set enable_seqscan = on set enable_hashjoin = on set enable_mergejoin = on
as $$
declare
    v_now     timestamptz := clock_timestamp();
    v_watched bigint;
    v_events  bigint;
begin
    delete from fence.waiters w
    where w.ticket = any (array(
        select o.ticket from fence.waiters o
        where o.deadline_at < v_now - interval '1 minute' or not exists (select from fence.gateways g
            where g.gateway_id = o.gateway_id)
        limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    delete from fence.watched w
    where w.lock = any (array(
        select o.lock from fence.watched o where o.until < v_now - p_watched_age limit p_rows_max
            for update skip locked));
    get diagnostics v_watched = row_count;
    with lost as (
        select u.lock, u.xid, u.id from fence.unpublished u
        where not exists (select from fence.watched w where w.lock = u.lock) limit p_rows_max for update skip locked
    )
    delete from fence.unpublished u using lost l where (u.lock, u.xid, u.id) = (l.lock, l.xid, l.id);
    get diagnostics v_events = row_count;
    more := p_rows_max in (done, v_watched, v_events);
    done := done + v_watched + v_events;
end
$$;
