-- fence.give_back(lock, owner_id, lease_id, fencing_token) releases a lease whose client was gone when it was granted,
-- and deletes its request_id, so that the request sent again is a new one. → the status of fence.release_lease; or
-- adopted, and nothing is changed: the request was sent again before, through another gateway, and that client has the
-- lease.
create or replace function fence.give_back(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_status text;
begin
    perform fence.lock_gate(p_lock, coalesce((
        select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    perform fence.lock_fence(p_lock);
    if exists (select from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token
        and l.adopted) then
        return 'adopted';
    end if;
    v_status := (select r.status from fence.release_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token) r);
    if v_status = 'released' then
        update fence.leases l set request_id = null where l.lock = p_lock and l.fencing_token = p_fencing_token;
    end if;
    return v_status;
end
$$;
