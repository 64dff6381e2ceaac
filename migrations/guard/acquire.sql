-- fence.acquire(lock, owner_id, ttl_ms, request_id, metadata) → one row: the outcome and a lease.
--
-- outcome  granted             the lease is the caller's; the fence is raised to its token (P3)
--          held                the lease is the holder's, without its lease_id
--          lost                the lease that this request_id was granted before has ended, see end_reason
--          request_id_reused   the request_id was used by another owner
--
-- Sent again with the same request_id, it returns the same lease, as long as that runs.
-- An expired lease is ended here and its lock granted at once: no sweep is waited for (P7).
-- The clock is read with the fence locked, and the running lease, too, which a sweep may have had in hand.
--
-- Raises LF003 where the policy says that another lock service issues the tokens; LF002 from mint.
create or replace function fence.acquire(
    p_lock text, p_owner_id text, p_ttl_ms integer, p_request_id text, p_metadata json,
    out outcome text, out lease fence.leases)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences := fence.lock_fence(p_lock);
    v_now   timestamptz;
begin
    if exists (select from fence.policy_for(p_lock) p where p.authority = 'external') then
        raise exception 'the tokens of % are issued by another lock service', p_lock using errcode = 'LF003';
    end if;

    if p_request_id is not null then
        select * into lease from fence.leases l where l.lock = p_lock and l.request_id = p_request_id;
        if found then
            outcome := case
                when lease.owner_id <> p_owner_id then 'request_id_reused'
                when lease.ended_at is null and lease.expires_at > clock_timestamp() then 'granted'
                else 'lost'
            end;
            if outcome = 'lost' then
                lease.end_reason := coalesce(lease.end_reason, 'expired');
            end if;
            return;
        end if;
    end if;

    select * into lease from fence.leases l where l.lock = p_lock and l.ended_at is null for update;
    v_now := clock_timestamp();
    if found and lease.expires_at > v_now then
        outcome := 'held';
        lease.lease_id := null;
        return;
    end if;

    update fence.leases l set ended_at = l.expires_at, end_reason = 'expired'
    where l.lock = p_lock and l.ended_at is null;

    outcome := 'granted';
    insert into fence.leases as l (
        lock, fencing_token, lease_id, owner_id, ttl_ms, granted_at, expires_at, request_id, metadata)
    values (
        p_lock, fence.mint(greatest(v_fence.granted_token, v_fence.last_token)), gen_random_uuid(), p_owner_id,
        p_ttl_ms, v_now, v_now + p_ttl_ms * interval '1 millisecond', p_request_id, p_metadata)
    returning l.* into lease;
    update fence.fences f set granted_token = lease.fencing_token, open = true where f.resource = p_lock;
end
$$;
