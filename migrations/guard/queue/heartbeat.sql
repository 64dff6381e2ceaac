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
