-- fence.lease_standing(lock, owner_id, lease_id, fencing_token) → how the lease that the caller names
-- stands: live, expired, released, broken, superseded (expired, and the lock granted anew since), mismatch
-- (no such lease, or not with this owner, lease_id and token together), or not_found (no such lock).
--
-- Locks the fence and the lease; the clock is read after that. All three must match (P6): an owner_id may be
-- shared by mistake, and a token is no secret.
create or replace function fence.lease_standing(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql
as $$
declare
    v_fence fence.fences;
    v_lease fence.leases;
begin
    select * into v_fence from fence.fences f where f.resource = p_lock for update;
    if not found or v_fence.granted_token = 0 then
        return 'not_found';
    end if;
    select * into v_lease
    from fence.leases l
    where l.lock = p_lock and l.fencing_token = p_fencing_token
    for update;
    if not found then
        return case when p_fencing_token < v_fence.granted_token then 'superseded' else 'mismatch' end;
    end if;

    return case
        when (v_lease.lease_id, v_lease.owner_id) is distinct from (p_lease_id, p_owner_id) then 'mismatch'
        when v_lease.end_reason in ('released', 'broken') then v_lease.end_reason
        when v_lease.fencing_token < v_fence.granted_token then 'superseded'
        when v_lease.ended_at is not null or v_lease.expires_at <= clock_timestamp() then 'expired'
        else 'live'
    end;
end
$$;
