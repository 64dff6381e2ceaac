-- fence.longest_running(leases) → the lease that runs longest among those that have not expired by the clock, with its
-- expires_at as of fence.runs_until; null if all have expired.
create or replace function fence.longest_running(p_leases fence.leases[]) returns fence.leases
language plpgsql
as $$
declare
    v_longest fence.leases;
    v_lease   fence.leases;
begin
    foreach v_lease in array p_leases loop
        v_lease.expires_at := fence.runs_until(v_lease);
        if v_lease.expires_at > greatest(clock_timestamp(), v_longest.expires_at) then
            v_longest := v_lease;
        end if;
    end loop;
    return v_longest;
end
$$;
