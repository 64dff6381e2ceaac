-- fence.renew_leases(locks, owner_ids, lease_ids, fencing_tokens, ttls_ms) → a row for each lease that was renewed: the
-- lease, and how late that was (fence.renew_lease). The arrays have an element for each lease, and no lock twice; ttl_ms
-- null: the TTL that it had. A lease that is not among the rows was not decided: send it to fence.renew_lease.
--
-- It decides what concerns nobody else: the lease is live and in no session, no policy limits how long it may be held, it
-- does not end earlier than before, and nobody watches it. Like fence.renew_lease, it locks nothing but leases; it waits
-- for none. The caller sets synchronous_commit.
create or replace function fence.renew_leases(
    p_locks text[], p_owner_ids text[], p_lease_ids uuid[], p_fencing_tokens bigint[], p_ttls_ms integer[])
returns table (lease fence.leases, late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
declare
    v_policies boolean := exists (select from fence.policies);
    v_locks    text[];
    v_now      timestamptz;
begin
    v_locks := array(
        select l.lock from unnest(p_locks, p_fencing_tokens) as r (lock, fencing_token)
        join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
        for update of l skip locked);
    -- Read before the leases are judged: a renewal counts from a moment at which the lease was live.
    v_now := clock_timestamp();

    return query
    update fence.leases l
    set ttl_ms = v.ttl_ms, expires_at = v.expires_at, check_at = least(l.check_at, v.expires_at)
    from (
        select r.lock, r.fencing_token, t.ttl_ms, t.expires_at, fence.late_ms(o.ttl_ms, o.expires_at) as late_ms
        from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens, p_ttls_ms)
            as r (lock, owner_id, lease_id, fencing_token, ttl_ms),
            lateral ( -- offset 0: no index but the primary key serves, whatever the statistics say
                select * from fence.leases o where o.lock = r.lock and o.fencing_token = r.fencing_token
                offset 0) o,
            lateral (
                select coalesce(r.ttl_ms, o.ttl_ms) as ttl_ms,
                    v_now + coalesce(r.ttl_ms, o.ttl_ms) * interval '1 millisecond' as expires_at) t
        where r.lock = any (v_locks) and (o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)
            and o.ended_at is null and o.hold_until is null
            and fence.lease_provider(o.lease_id) = 'postgres'
            and o.expires_at > clock_timestamp() and o.expires_at <= t.expires_at -- in a session it is infinity
            and not (v_policies and fence.hold_until(o.lock, o.granted_at) is not null)
            and not exists (
                select from fence.watched w where w.lock = o.lock and w.until > clock_timestamp() offset 0)
    ) v
    where l.lock = v.lock and l.fencing_token = v.fencing_token
    returning l, v.late_ms;
end
$$;
