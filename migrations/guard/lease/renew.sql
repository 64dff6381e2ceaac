-- fence.renew_lease(lock, owner_id, lease_id, fencing_token, ttl_ms) → one row: the status of the lease and, if that is
-- live, the lease. It now expires ttl_ms from now (null: the TTL it had), but not after its hold_until, which the policy
-- in force sets again; if that is over already, the lease expires now. status is in_session if its session must be kept
-- alive instead.
-- If the lease ends earlier now, the next waiters are notified. late_ms is how much later it came than a third of the
-- TTL after the grant or the renewal before, negative if earlier; for a live or expired lease that still exists.
--
-- Raises LF005 for a lease in Redis: only its gateways can renew it.
--
-- Locks nothing but the lease. A renewal need not reach the disk before it is answered: one that a crash loses makes the
-- lease shorter, never longer. The caller sets synchronous_commit accordingly, because it knows what else its transaction
-- does.
create or replace function fence.renew_lease(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_ttl_ms integer,
    out status text, out lease fence.leases, out late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_until timestamptz;
    v_now   timestamptz;
begin
    if fence.lease_provider(p_lease_id) <> 'postgres' then
        raise exception 'the lease is kept in Redis: renew it through a gateway' using errcode = 'LF005';
    end if;
    perform from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token for update;
    -- Read before the lease is judged: a renewal counts from a moment at which the lease was live.
    v_now := clock_timestamp();
    status := fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token);
    if status in ('live', 'expired', 'superseded') then
        select l.expires_at, fence.late_ms(l.ttl_ms, l.expires_at) into v_until, late_ms
        from fence.leases l
        where l.session_id is null and l.lock = p_lock and l.fencing_token = p_fencing_token;
    end if;
    if status <> 'live' then
        return;
    end if;
    update fence.leases l
    set ttl_ms = coalesce(p_ttl_ms, l.ttl_ms), hold_until = h.until,
        expires_at = least(v_now + coalesce(p_ttl_ms, l.ttl_ms) * interval '1 millisecond', h.until),
        check_at = least(l.check_at, v_now + coalesce(p_ttl_ms, l.ttl_ms) * interval '1 millisecond', h.until)
    from (
        select fence.hold_until(p_lock, g.granted_at, v_now) as until
        from fence.leases g where g.lock = p_lock and g.fencing_token = p_fencing_token
    ) h
    where l.lock = p_lock and l.fencing_token = p_fencing_token and l.session_id is null
    returning l.* into lease;
    if not found then
        status := 'in_session';
        return;
    end if;
    if lease.expires_at <= clock_timestamp() then -- the time that the policy allows is over
        status := 'expired';
        perform fence.wake(p_lock, lease.scope, 0);
        return;
    end if;
    if lease.expires_at < v_until then
        perform fence.wake(p_lock, lease.scope, fence.left_ms(lease));
    end if;
end
$$;

-- fence.renew_leases(locks, owner_ids, lease_ids, fencing_tokens, ttls_ms) → a row for each lease that was renewed: the
-- lease, and how late that was (fence.renew_lease). The arrays have an element for each lease, and no lock twice; ttl_ms
-- null: the TTL that it had. A lease that is not among the rows was not decided: send it to fence.renew_lease.
--
-- It decides what concerns nobody else: the lease is live and in no session, no policy limits how long it may be held, and
-- it does not end earlier than before. Like fence.renew_lease, it locks nothing but leases; it waits for none. The caller sets synchronous_commit.
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
            and o.session_id is null and o.expires_at > clock_timestamp() and o.expires_at <= t.expires_at
            and not (v_policies and fence.hold_until(o.lock, o.granted_at, v_now) is not null)
    ) v
    where l.lock = v.lock and l.fencing_token = v.fencing_token
    returning l, v.late_ms;
end
$$;

-- fence.late_ms(ttl_ms, expires_at) → how much later than a third of the TTL after the last renewal it is now, in
-- milliseconds; negative: earlier. It decides nothing: holders are asked to renew that often, and a metric shows
-- whether they do.
create or replace function fence.late_ms(p_ttl_ms integer, p_expires_at timestamptz) returns bigint
language sql volatile
as $$
    select (extract(epoch from clock_timestamp() - p_expires_at) * 1000)::bigint + p_ttl_ms * 2 / 3
$$;
