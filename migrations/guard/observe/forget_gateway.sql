-- fence.forget_gateway(gateway_id) notes that a gateway has ended. The others read its last totals before the sweep
-- deletes it (fence.sweep_gateways). The commit does not wait for the disk.
create or replace function fence.forget_gateway(p_gateway_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update fence.gateway_states g set ended = true where g.gateway_id = p_gateway_id;
end
$$;
