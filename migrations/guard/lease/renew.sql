-- fence.renew_leases(locks, owner_ids, lease_ids, fencing_tokens, ttls_ms, may_wait) → a row for each lease that was decided:
-- its lock, its status and, if that is live, the lease. It now expires ttl_ms from now (null: the TTL it had), but not
-- after its hold_until, which the policy in force sets again; if that is over already, the lease expires now. status is
-- in_session if its session must be kept alive instead. late_ms is how much later it came than a third of the TTL after
-- the grant or the renewal before, negative if earlier; for a live or expired lease that still exists. If a lease ends
-- earlier now, the next waiters are notified. The arrays have an element for each lease, and no lock twice.
--
-- may_wait  whether it may wait for other transactions. A batch must not: a lease that it could not lock, or that does
--           not exist, is not among the rows
--
-- Raises LF005 for a lease in Redis: only its gateways can renew it.
--
-- Locks nothing but leases. A renewal need not reach the disk before it is answered: one that a crash loses makes the
-- lease shorter, never longer. The caller sets synchronous_commit accordingly, because it knows what else its transaction
-- does.
create or replace function fence.renew_leases(
    p_locks text[], p_owner_ids text[], p_lease_ids uuid[], p_fencing_tokens bigint[], p_ttls_ms integer[],
    p_may_wait boolean)
returns table (lock text, status text, lease fence.leases, late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_policies boolean := exists (select from fence.policies);
    v_locks    text[]; -- of the leases that this has locked
    v_done     text[] := '{}';
    v_now      timestamptz;
    v_renewed  record;
    v_ref      record;
begin
    if p_may_wait then
        perform fence.check_all_here(p_locks);
        perform from unnest(p_locks, p_fencing_tokens) as r (lock, fencing_token)
        join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
        order by l.lock for update of l;
        v_locks := p_locks;
    else
        v_locks := array(
            select l.lock from unnest(p_locks, p_fencing_tokens) as r (lock, fencing_token)
            join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
            for update of l skip locked);
    end if;
    -- Read before the leases are judged: a renewal counts from a moment at which the lease was live.
    v_now := clock_timestamp();

    for v_renewed in
        update fence.leases l
        set ttl_ms = v.ttl_ms, hold_until = v.hold_until, expires_at = v.expires_at,
            check_at = least(l.check_at, v.expires_at)
        from (
            select r.lock, r.fencing_token, t.ttl_ms, t.hold_until, o.expires_at as before,
                least(v_now + t.ttl_ms * interval '1 millisecond', t.hold_until) as expires_at,
                fence.late_ms(o.ttl_ms, o.expires_at) as late_ms
            from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens, p_ttls_ms)
                as r (lock, owner_id, lease_id, fencing_token, ttl_ms),
                lateral ( -- offset 0: no index but the primary key serves, whatever the statistics say
                    select * from fence.leases o where o.lock = r.lock and o.fencing_token = r.fencing_token
                    offset 0) o,
                lateral (
                    select coalesce(r.ttl_ms, o.ttl_ms) as ttl_ms,
                        case when v_policies then fence.hold_until(o.lock, o.granted_at, v_now) end as hold_until
                    offset 0) t
            where r.lock = any (v_locks) and (o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)
                and o.ended_at is null and o.session_id is null and o.expires_at > v_now
                and fence.lease_provider(o.lease_id) = 'postgres'
        ) v
        where l.lock = v.lock and l.fencing_token = v.fencing_token
        returning l as lease, v.late_ms, v.before
    loop
        lease := v_renewed.lease;
        lock := lease.lock;
        status := 'live';
        late_ms := v_renewed.late_ms;
        v_done := v_done || lock;
        if lease.expires_at <= clock_timestamp() then -- the time that the policy allows is over
            status := 'expired';
            perform fence.wake(lock, lease.scope, 0);
        elsif lease.expires_at < v_renewed.before then
            perform fence.wake(lock, lease.scope, fence.left_ms(lease));
        end if;
        return next;
    end loop;

    if cardinality(v_done) = cardinality(v_locks) then
        return; -- a loop over none costs an eighth of a renewal
    end if;
    lease := null;
    for v_ref in
        select * from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens) as r (lock, owner_id, id, token)
        where r.lock <> all (v_done) and r.lock = any (v_locks)
    loop
        if fence.lease_provider(v_ref.id) <> 'postgres' then
            raise exception 'the lease is kept in Redis: renew it through a gateway' using errcode = 'LF005';
        end if;
        lock := v_ref.lock;
        status := fence.lease_status(lock, v_ref.owner_id, v_ref.id, v_ref.token);
        late_ms := case when status in ('live', 'expired', 'superseded') then (
            select fence.late_ms(l.ttl_ms, l.expires_at) from fence.leases l
            where l.session_id is null and l.lock = v_ref.lock and l.fencing_token = v_ref.token) end;
        status := case status when 'live' then 'in_session' else status end;
        return next;
    end loop;
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
