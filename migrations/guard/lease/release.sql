-- fence.release(lock, owner_id, lease_id, fencing_token) → the status of fence.release_lease.
create or replace function fence.release(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    return (select r.status from fence.release_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token) r);
end
$$;
