-- fence.left_ms(lease) → how long the lease runs if nobody renews it, in milliseconds, at least 1.
create or replace function fence.left_ms(p_lease fence.leases) returns bigint
language plpgsql volatile
as $$
begin
    return greatest(1, ceil(extract(epoch from fence.runs_until(p_lease) - clock_timestamp()) * 1000));
end
$$;
