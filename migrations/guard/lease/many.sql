-- fence.acquire_leases(locks, owner_ids, principals, modes, ttls_ms, request_ids, metadata, waits_ms, gateway_ids, claim) →
-- a row for each request that was decided: its lock, and the row of fence.acquire_lease. The arrays have an element for
-- each request, and no lock twice; the requests are for names alone, and in no session.
--
-- One statement decides what needs no look at others; then fence.acquire_lease decides the rest, one by one. So that no
-- request delays the others, none waits for a lock of another transaction: what would have to is not among the rows, and is
-- to be sent alone. fence.release_leases and fence.renew_leases do the same.
--
-- The one statement grants where the request_id is new, the name is not (fence.check_new_fence), nobody waits for the lock
-- or watches it (fence.plain_locks), and its newest lease (fence.leases of granted_token) shows that it is free. That was
-- exclusive, and has ended; or it was shared, and so is the request: the grant of a shared lease has ended any exclusive
-- one before.
--
-- claim is the lease_id of all leases, for fence.claim_leases: that has checked the names that are new. Others have null.
--
-- Raises LF002 from mint, LF006 from jump.
create or replace function fence.acquire_leases(
    p_locks text[], p_owner_ids text[], p_principals text[], p_modes text[], p_ttls_ms integer[],
    p_request_ids text[], p_metadata text[], p_waits_ms integer[], p_gateway_ids uuid[], p_claim uuid default null)
returns table (
    lock text, outcome text, lease fence.leases, left_ms bigint, queue_length bigint, ticket bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_setting  text := fence.commit_durably();
    v_durable  boolean := false;
    v_policies boolean;
    v_free     text[] := array(select l from unnest(p_locks) l where fence.try_tree_lock(l));
    v_done     text[] := '{}';
    v_lease    fence.leases;
    v_request  record;
begin
    perform fence.note_jump();
    v_free := array(
        select f.resource from fence.fences f
        where f.resource = any (v_free) and (f.granted_token > 0 or f.last_token > 0 or p_claim is not null)
        for update skip locked);
    v_free := fence.plain_locks(v_free);
    v_policies := exists (select from fence.policies);

    for v_lease in
        with granted as (
            insert into fence.leases as l (
                lock, fencing_token, lease_id, owner_id, principal, mode, ttl_ms, requested_ttl_ms, granted_at, expires_at,
                hold_until, check_at, request_id, metadata)
            select r.lock, fence.mint(greatest(f.granted_token, f.last_token)), coalesce(p_claim, gen_random_uuid()),
                r.owner_id, r.principal, r.mode, r.ttl_ms, r.ttl_ms, t.now, e.expires_at, h.hold_until, e.expires_at,
                r.request_id, r.metadata::json
            from unnest(p_locks, p_owner_ids, p_principals, p_modes, p_ttls_ms, p_request_ids, p_metadata)
                as r (lock, owner_id, principal, mode, ttl_ms, request_id, metadata)
            join fence.fences f on f.resource = r.lock
            left join lateral ( -- offset 0: no index but the primary key serves, whatever the statistics say
                select o.mode, o.ended_at from fence.leases o
                where o.lock = r.lock and o.fencing_token = f.granted_token
                offset 0) newest on true
            -- The clock is read after the snapshot of the statement, so the leases that it sees as ended had ended
            -- before: the sweep ends leases without the fence.
            cross join lateral (select clock_timestamp() as now offset 0) t
            cross join lateral (
                select case when v_policies then fence.hold_until(r.lock, t.now, t.now) end as hold_until offset 0) h
            cross join lateral (
                select least(t.now + r.ttl_ms * interval '1 millisecond', h.hold_until) as expires_at offset 0) e
            where r.lock = any (v_free)
                and case newest.mode
                    when 'exclusive' then newest.ended_at is not null
                    when 'shared' then r.mode = 'shared'
                    else f.granted_token = 0
                end
                and not exists (
                    select from fence.leases o
                    where o.lock = r.lock collate "POSIX" and o.request_id = r.request_id offset 0)
                and not (v_policies and fence.has_external_tokens(r.lock))
                and not (v_policies and not fence.owner_is_allowed(fence.lease_request(
                    r.lock, r.owner_id, r.mode, 'node', r.ttl_ms, null, r.request_id, r.metadata::json, r.principal)))
            returning l.*
        ), raised as (
            update fence.fences f
            set granted_token = l.fencing_token, open = l.mode = 'exclusive', adopted_token = null, admitted_in = null
            from granted l
            where f.resource = l.lock
        )
        select * from granted
    loop
        lock := v_lease.lock;
        outcome := 'granted';
        lease := v_lease;
        v_done := v_done || lock;
        return next;
    end loop;
    v_durable := v_done <> '{}';

    for v_request in
        select r.lock, r.wait_ms, r.gateway_id, fence.lease_request(r.lock, r.owner_id, r.mode, 'node', r.ttl_ms, null, r.request_id,
            r.metadata::json, r.principal, p_claim) as request
        from unnest(p_locks, p_owner_ids, p_principals, p_modes, p_ttls_ms, p_request_ids, p_metadata, p_waits_ms,
            p_gateway_ids) as r (lock, owner_id, principal, mode, ttl_ms, request_id, metadata, wait_ms, gateway_id)
        where r.lock <> all (v_done)
    loop
        return query
        select v_request.lock, a.*
        from fence.acquire_lease(v_request.request, v_request.wait_ms, v_request.gateway_id, false) a
        where a.outcome <> 'undecided';
        v_durable := v_durable or current_setting('synchronous_commit') <> 'off';
    end loop;
    perform set_config('synchronous_commit', case when v_durable then v_setting else 'off' end, true);
end
$$;

-- fence.release_leases(locks, owner_ids, lease_ids, fencing_tokens) → a row for each lease that was decided: its lock, and
-- the result of fence.release_lease. See fence.acquire_leases.
--
-- The one statement releases where the lease is live, and nobody waits for the lock or watches it (fence.plain_locks). The
-- fences close.
create or replace function fence.release_leases(
    p_locks text[], p_owner_ids text[], p_lease_ids uuid[], p_fencing_tokens bigint[])
returns table (lock text, status text, mode text, age_ms double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_setting text := fence.commit_durably();
    v_plain   text[] := array(select l from unnest(p_locks) l where fence.try_tree_lock(l));
    v_done    text[] := '{}';
    v_any     boolean;
    v_ref     record;
begin
    v_plain := array(
        select f.resource from fence.fences f where f.resource = any (v_plain) for update skip locked);
    v_plain := fence.plain_locks(v_plain);
    v_plain := array(
        select l.lock from unnest(p_locks, p_fencing_tokens) as r (lock, fencing_token)
        join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
        where r.lock = any (v_plain)
        for update of l skip locked);

    for lock, mode, age_ms in
        with ended as (
            update fence.leases l set ended_at = least(clock_timestamp(), l.expires_at), end_reason = 'released'
            from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens)
                as r (lock, owner_id, lease_id, fencing_token),
                lateral ( -- offset 0: no index but the primary key serves, whatever the statistics say
                    select * from fence.leases o where o.lock = r.lock and o.fencing_token = r.fencing_token
                    offset 0) o
            where r.lock = any (v_plain) and (o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)
                and o.ended_at is null and o.expires_at > clock_timestamp()
                and l.lock = r.lock and l.fencing_token = r.fencing_token
            returning l.lock, l.fencing_token, l.mode, l.ended_at - l.granted_at as age
        ), closed as (
            update fence.fences f set open = false
            from ended e
            where f.resource = e.lock and f.granted_token = e.fencing_token and f.open
        )
        select e.lock, e.mode, extract(epoch from e.age) * 1000 from ended e
    loop
        status := 'released';
        v_done := v_done || lock;
        return next;
    end loop;
    v_any := v_done <> '{}';

    for v_ref in
        select * from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens) as r (lock, owner_id, id, token)
        where r.lock <> all (v_done)
    loop
        return query
        select v_ref.lock, e.status, e.mode, e.age_ms
        from fence.release_lease(v_ref.lock, v_ref.owner_id, v_ref.id, v_ref.token, null, false) e
        where e.status <> 'undecided';
        v_any := v_any or found;
    end loop;
    perform set_config('synchronous_commit', case when v_any then v_setting else 'off' end, true);
end
$$;

-- fence.plain_locks(locks) → those of the locks about which many can be decided in one statement: nobody waits for the
-- lock, nobody watches it, and no subtree lease was ever requested for its name or one above it.
--
-- The caller holds the tree locks (fence.try_tree_lock) and the fences, which keep a waiter and a subtree from coming.
create or replace function fence.plain_locks(p_locks text[]) returns text[]
language plpgsql
as $$
begin
    return array(
        select l from unnest(p_locks) l
        -- offset 0: each is looked up by its name, whatever the statistics say of a table that was empty a minute ago
        where not exists (select from fence.waiters w where w.lock = l offset 0)
            and not exists (select from fence.watched w where w.lock = l and w.until > clock_timestamp() offset 0)
            and not exists (select from fence.fences f where f.resource = l and f.subtree_token is not null offset 0)
            and not fence.has_subtrees(l));
end
$$;
