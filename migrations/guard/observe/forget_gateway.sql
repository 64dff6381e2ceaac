-- fence.forget_gateway(gateway_id) forgets how a gateway was that has ended; its samples stay. The commit does not wait
-- for the disk.
create or replace function fence.forget_gateway(p_gateway_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from fence.gateway_states g where g.gateway_id = p_gateway_id;
end
$$;
