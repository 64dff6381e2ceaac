-- fence.lease_status(lock, owner_id, lease_id, fencing_token) → the status of the lease that the caller names: live,
-- expired, released, broken, superseded (expired, and the lock granted again since), mismatch (no such lease, or not with
-- this owner, lease_id and token together), or not_found (no such lock).
--
-- Locks the lease, and not the fence; the clock is read after that. A grant to another owner locks the lease, too. All
-- three must match (P6): an owner_id may be shared by mistake, and a token is no secret.
create or replace function fence.lease_status(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql
as $$
declare
    v_lease   fence.leases;
    v_granted bigint;
begin
    select * into v_lease from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token for update;
    if not found and exists (select from fence.cluster) then
        perform fence.check_here(p_lock); -- from here on, the name does not leave
        select * into v_lease from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token for update;
    end if;
    select f.granted_token into v_granted from fence.fences f where f.resource = p_lock;
    if coalesce(v_granted, 0) = 0 then
        return 'not_found';
    end if;
    if v_lease.lock is null then
        return case when p_fencing_token < v_granted then 'superseded' else 'mismatch' end;
    end if;

    return case
        when (v_lease.lease_id, v_lease.owner_id) is distinct from (p_lease_id, p_owner_id) then 'mismatch'
        when v_lease.end_reason in ('released', 'broken') then v_lease.end_reason
        when v_lease.ended_at is null and v_lease.expires_at > clock_timestamp() then 'live'
        when v_lease.fencing_token < greatest(v_granted, fence.granted_above(p_lock)) then 'superseded'
        else 'expired'
    end;
end
$$;

-- fence.live_leases() → the leases that have not ended and that have not expired by the clock. The planner inlines it; the
-- caller restricts it to locks or owners.
create or replace function fence.live_leases() returns setof fence.leases
language sql stable
as $$
    select l.* from fence.leases l where l.ended_at is null and l.expires_at > clock_timestamp()
$$;

-- fence.left_ms(lease) → how long the lease runs if nobody renews it, in milliseconds, at least 1.
create or replace function fence.left_ms(p_lease fence.leases) returns bigint
language plpgsql volatile
as $$
begin
    return greatest(1, ceil(extract(epoch from p_lease.expires_at - clock_timestamp()) * 1000));
end
$$;
