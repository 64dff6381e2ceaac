-- fence.renew_lease(lock, owner_id, lease_id, fencing_token, ttl_ms) → one row: the status of the lease and, if that is
-- live, the lease. It now expires ttl_ms from now (null: the TTL it had), but not after its hold_until, which the policy
-- in force sets again. status is max_hold if that has passed, or in_session if its session must be kept alive instead.
-- If the lease ends earlier now, the next waiters are notified. late_ms is how much later it came than a third of the
-- TTL after the grant or the renewal before, negative if earlier; for a live or expired lease that still exists.
--
-- Raises LF005 for a lease in Redis: only its gateways can renew it.
--
-- Locks nothing but the lease, and its fence if nobody else has that locked. A renewal need not reach the disk before
-- it is answered: one that a crash loses makes the lease shorter, never longer. The caller sets synchronous_commit
-- accordingly, because it knows what else its transaction does.
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
    if status in ('live', 'expired', 'superseded', 'max_hold') then
        select l.expires_at, fence.late_ms(l.ttl_ms, l.expires_at) into v_until, late_ms
        from fence.leases l
        where l.lock = p_lock and l.fencing_token = p_fencing_token and isfinite(l.expires_at);
    end if;
    if status <> 'live' then
        return;
    end if;
    update fence.leases l
    set ttl_ms = coalesce(p_ttl_ms, l.ttl_ms), hold_until = h.until,
        expires_at = least(v_now + coalesce(p_ttl_ms, l.ttl_ms) * interval '1 millisecond', h.until),
        check_at = least(l.check_at, v_now + coalesce(p_ttl_ms, l.ttl_ms) * interval '1 millisecond', h.until)
    from (
        select fence.hold_until(p_lock, g.granted_at) as until
        from fence.leases g where g.lock = p_lock and g.fencing_token = p_fencing_token
    ) h
    where l.lock = p_lock and l.fencing_token = p_fencing_token and l.session_id is null
    returning l.* into lease;
    if not found then
        status := 'in_session';
        return;
    end if;
    if lease.hold_until is not null then
        perform fence.limit_fences(array[p_lock]);
    end if;
    if lease.expires_at <= clock_timestamp() then
        -- The policy is newer than the grant, and the time that it allows is over.
        status := 'max_hold';
        perform fence.wake(p_lock, lease.scope, 0);
        return;
    end if;
    perform fence.publish_lease_event(lease, 'renewed');
    if lease.expires_at < v_until then
        perform fence.wake(p_lock, lease.scope, fence.left_ms(lease));
    end if;
end
$$;
