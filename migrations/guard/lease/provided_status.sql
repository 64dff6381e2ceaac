-- fence.provided_status(lock, owner_id, lease_id, fencing_token) → fence.lease_status of a lease that another provider
-- keeps, and no longer knows.
create or replace function fence.provided_status(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token)
$$;
