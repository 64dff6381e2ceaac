-- fence.renew(lock, owner_id, lease_id, fencing_token, ttl_ms) → one row: the standing of the lease and,
-- if that is live, the lease, which now expires ttl_ms from now (null: the TTL it had).
create or replace function fence.renew(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_ttl_ms integer,
    out standing text, out lease fence.leases)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    standing := fence.lease_standing(p_lock, p_owner_id, p_lease_id, p_fencing_token);
    if standing <> 'live' then
        return;
    end if;
    update fence.leases l
    set ttl_ms = coalesce(p_ttl_ms, l.ttl_ms),
        expires_at = clock_timestamp() + coalesce(p_ttl_ms, l.ttl_ms) * interval '1 millisecond'
    where l.lock = p_lock and l.fencing_token = p_fencing_token
    returning l.* into lease;
end
$$;
