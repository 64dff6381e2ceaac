-- fence.heartbeat(gateway_id, lasts_ms) keeps the waiters of a gateway in their queues for so long. → whether the
-- gateway had lapsed, or came close: its waiters did not count meanwhile, and count again, so they may close cycles
-- that nobody saw (fence.find_deadlocks).
--
-- Close is a third of the time: a search that read the clock before this committed may have skipped its waiters.
create or replace function fence.heartbeat(p_gateway_id uuid, p_lasts_ms integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_until timestamptz;
begin
    perform set_config('synchronous_commit', 'off', true);
    select g.alive_until into v_until from fence.gateways g where g.gateway_id = p_gateway_id for update;
    insert into fence.gateways (gateway_id, alive_until)
    values (p_gateway_id, clock_timestamp() + p_lasts_ms * interval '1 millisecond')
    on conflict (gateway_id) do update set alive_until = excluded.alive_until;
    return coalesce(v_until < clock_timestamp() + p_lasts_ms / 3 * interval '1 millisecond', true);
end
$$;

-- fence.sweep_gateways(rows_max) → done: the number of gateways deleted, with their waiters, because they sent no
-- heartbeat for a minute; more. See fence.sweep. None of those waiters counts any more (fence.live_waiters). Also
-- deletes the states of gateways that ended a minute ago, or were silent for a day.
create or replace function fence.sweep_gateways(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - interval '1 minute';
    v_gone   uuid[];
begin
    delete from fence.gateway_states g
    where g.gateway_id = any (array(
        select o.gateway_id from fence.gateway_states o
        where o.seen_at < case when o.ended then v_before else clock_timestamp() - interval '1 day' end
        for update skip locked));
    with gone as (
        delete from fence.gateways g
        where g.gateway_id = any (array(
            select o.gateway_id from fence.gateways o
            where o.alive_until < v_before limit p_rows_max for update skip locked))
        returning g.gateway_id
    )
    select array_agg(g.gateway_id) into v_gone from gone g;
    if v_gone is null then
        return;
    end if;
    done := cardinality(v_gone);
    more := done = p_rows_max;
    delete from fence.waiters w
    where w.ticket = any (array(select o.ticket from fence.waiters o
        where o.gateway_id = any (v_gone) for update skip locked));
end
$$;

-- fence.sweep_waiting(rows_max, watched_age) → done: the number of rows deleted; more. Deletes waiters whose deadline
-- passed a minute ago or whose gateway is gone, and watches that lapsed watched_age ago. See fence.sweep. None of them
-- counts any more. Reads all waiters and watches.
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
    delete from fence.watched w
    where w.lock = any (array(
        select o.lock from fence.watched o where o.until < v_now - p_watched_age limit p_rows_max
            for update skip locked));
    get diagnostics v_watched = row_count;
    more := p_rows_max in (done, v_watched);
    done := done + v_watched;
end
$$;
