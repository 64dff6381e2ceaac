-- fence.has_lease_id(lock, token, lease_id) → whether the lease on the lock with this token has this lease_id. For
-- fence.guard: names are qualified, as there.
create or replace function fence.has_lease_id(p_lock text, p_token bigint, p_lease_id uuid) returns boolean
language plpgsql stable
as $$
begin
    return exists (
        select from fence.leases l
        where l.lock operator(pg_catalog.=) p_lock and l.fencing_token operator(pg_catalog.=) p_token
            and l.lease_id operator(pg_catalog.=) p_lease_id);
end
$$;
