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
