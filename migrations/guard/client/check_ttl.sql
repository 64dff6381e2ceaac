-- fence.check_ttl(ttl_ms) raises 22023 unless a lease may have this TTL: 100 ms to 24 h.
create or replace function fence.check_ttl(p_ttl_ms integer) returns void
language plpgsql
as $$
begin
    perform fence.require(p_ttl_ms between 100 and 86400000,
        format('ttl_ms is %L, it must be 100 to 86400000', p_ttl_ms));
end
$$;
