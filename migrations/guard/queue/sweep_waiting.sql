-- fence.sweep_waiting(pause, watched_age, rows_max) → done: the number of rows deleted; more. Deletes waiters whose
-- deadline passed a minute ago or whose gateway is gone, and watches that lapsed watched_age ago. See fence.sweep_turn.
-- None of them counts any more, with or without a sweep.
--
-- Reads all waiters and all watches, so it is due sixty times less often than the other parts.
create or replace function fence.sweep_waiting(
    p_pause interval, p_watched_age interval, p_rows_max integer, out done bigint, out more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '500ms'
as $$
declare
    v_now     timestamptz := clock_timestamp();
    v_watched bigint;
begin
    done := 0;
    more := false;
    if not fence.sweep_turn('waiting', 60 * p_pause) then
        return;
    end if;
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
    more := p_rows_max in (done, v_watched);
    done := done + v_watched;
end
$$;
