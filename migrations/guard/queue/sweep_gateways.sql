-- fence.sweep_gateways(pause, rows_max) → done: the number of gateways deleted, with their waiters, because they sent
-- no heartbeat for a minute; more. See fence.sweep_turn. None of those waiters counts any more (fence.live_waiters),
-- with or without a sweep.
create or replace function fence.sweep_gateways(p_pause interval, p_rows_max integer, out done bigint, out more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set lock_timeout = '500ms'
as $$
declare
    v_before timestamptz := clock_timestamp() - interval '1 minute';
    v_gone   uuid[];
begin
    done := 0;
    more := false;
    if not fence.sweep_turn('gateways', p_pause) then
        return;
    end if;
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
