-- fence.sweep_waiting(rows_max, watched_age) → done: the number of rows deleted; more. Deletes waiters whose deadline
-- passed a minute ago or whose gateway is gone, and watches that lapsed watched_age ago, with the events that no gateway
-- has published. See fence.sweep. None of them counts any more. Reads all waiters and all watches.
create or replace function fence.sweep_waiting(
    p_rows_max integer, p_watched_age interval, out done bigint, out more boolean)
language plpgsql
set enable_seqscan = on set enable_hashjoin = on set enable_mergejoin = on
as $$
declare
    v_now     timestamptz := clock_timestamp();
    v_watched bigint;
begin
    delete from fence.waiters w
    where w.ticket = any (array(
        select o.ticket from fence.waiters o
        where o.deadline_at < v_now - interval '1 minute' or not exists (select from fence.gateways g
            where g.gateway_id = o.gateway_id)
        limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    with lapsed as (
        delete from fence.watched w
        where w.lock = any (array(
            select o.lock from fence.watched o where o.until < v_now - p_watched_age limit p_rows_max
                for update skip locked))
        returning w.lock
    ), unpublished as (
        delete from fence.unpublished u using lapsed l where u.lock = l.lock
    )
    select count(*) into v_watched from lapsed;
    more := p_rows_max in (done, v_watched);
    done := done + v_watched;
end
$$;
