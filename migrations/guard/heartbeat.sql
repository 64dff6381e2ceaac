-- fence.heartbeat(gateway_id, lasts_ms) keeps the waiters of a gateway in their lines for so long. A gateway that nobody hears of is passed over.
create or replace function fence.heartbeat(p_gateway_id uuid, p_lasts_ms integer) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select set_config('synchronous_commit', 'off', true);
    insert into fence.gateways (gateway_id, alive_until)
    values (p_gateway_id, clock_timestamp() + p_lasts_ms * interval '1 millisecond')
    on conflict (gateway_id) do update set alive_until = excluded.alive_until
$$;
