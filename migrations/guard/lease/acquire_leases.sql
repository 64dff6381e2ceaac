-- fence.acquire_leases(locks, owner_ids, principals, modes, ttls_ms, request_ids, metadata, claim) → the leases that are
-- granted, in no order. The arrays have an element for each request, and no lock twice; ttl_ms is that of a lease for the name
-- alone, in no session. A request that is not among the leases was not decided: send it to fence.acquire_lease.
--
-- It decides what needs no look at others: the request_id is new, the name is not (fence.check_new_fence), nobody waits
-- for the lock, and its newest lease (fence.leases of granted_token) shows that it is free. That was exclusive, and has
-- ended; or it was shared, and so is the request: the grant of a shared lease has ended any exclusive one before. So
-- that no request delays the others, it waits for no lock of another transaction, and leaves out the requests that would
-- have to.
--
-- claim is the lease_id of all leases, for fence.claim_leases: that has checked the names that are new. Others have null.
--
-- Raises LF002 from mint, LF006 from jump.
create or replace function fence.acquire_leases(
    p_locks text[], p_owner_ids text[], p_principals text[], p_modes text[], p_ttls_ms integer[],
    p_request_ids text[], p_metadata text[], p_claim uuid default null)
returns setof fence.leases
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
declare
    v_locks    text[] := array(select l from unnest(p_locks) l where fence.try_tree_lock(l));
    v_policies boolean;
begin
    perform fence.commit_durably();
    perform fence.note_jump();
    v_locks := array(
        select f.resource from fence.fences f
        where f.resource = any (v_locks) and (f.granted_token > 0 or f.last_token > 0 or p_claim is not null)
        for update skip locked);
    v_locks := fence.plain_locks(v_locks);
    if cardinality(v_locks) = 0 then
        perform set_config('synchronous_commit', 'off', true);
        return;
    end if;
    v_policies := exists (select from fence.policies);

    return query
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
            select o.mode, o.ended_at, o.kept from fence.leases o
            where o.lock = r.lock and o.fencing_token = f.granted_token
            offset 0) newest on true
        -- The clock is read after the snapshot of the statement, so the leases that it sees as ended had ended before: the
        -- sweep ends leases without the fence.
        cross join lateral (select clock_timestamp() as now offset 0) t
        cross join lateral (
            select case when v_policies then fence.hold_until(r.lock, t.now, t.now) end as hold_until offset 0) h
        cross join lateral (
            select least(t.now + r.ttl_ms * interval '1 millisecond', h.hold_until) as expires_at offset 0) e
        where r.lock = any (v_locks)
            and case newest.mode
                when 'exclusive' then newest.ended_at is not null
                when 'shared' then r.mode = 'shared'
                else f.granted_token = 0
            end
            and newest.kept is not true -- fence.grant_lease changes it
            and not exists (
                select from fence.leases o where o.lock = r.lock collate "POSIX" and o.request_id = r.request_id offset 0)
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
    select * from granted;
    if not found then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end
$$;

-- fence.acquire_one(lock, owner_id, principal, mode, ttl_ms, request_id, metadata) is fence.acquire_leases for one lock,
-- at four fifths of its cost: each statement reads or changes one row by its key. → the lease, or no row where the request
-- was not decided.
--
-- Where there are policies, or where tokens have to jump (fence.jump), it leaves the request to fence.acquire_leases. Its
-- other conditions are the same.
--
-- Raises LF002 from mint, LF006 from jump.
create or replace function fence.acquire_one(
    p_lock text, p_owner_id text, p_principal text, p_mode text, p_ttl_ms integer, p_request_id text, p_metadata text)
returns setof fence.leases
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_setting text := fence.commit_durably();
    v_granted bigint;
    v_newest  bigint;
    v_special boolean;
    v_free    boolean;
    v_lease   fence.leases;
begin
    select f.granted_token, greatest(f.granted_token, f.last_token) into v_granted, v_newest from fence.fences f
    where f.resource = p_lock and (f.granted_token > 0 or f.last_token > 0) and f.subtree_token is null
        and fence.try_tree_lock(p_lock)
    for update skip locked;
    if found then
        select
            exists (select from fence.policies) or not exists (select from fence.minted_here()),
            not fence.has_subtrees(p_lock) and not exists (select from fence.waiters w where w.lock = p_lock)
                and not exists (select from fence.watched w where w.lock = p_lock and w.until > clock_timestamp())
                and not exists (
                    select from fence.leases o where o.lock = p_lock collate "POSIX" and o.request_id = p_request_id)
                and coalesce((
                    select case o.mode when 'exclusive' then o.ended_at is not null else p_mode = 'shared' end
                        and not o.kept -- fence.grant_lease changes it
                    from fence.leases o where o.lock = p_lock and o.fencing_token = v_granted
                ), v_granted = 0)
        into v_special, v_free;
        if v_special then
            return query select * from fence.acquire_leases(array[p_lock], array[p_owner_id], array[p_principal],
                array[p_mode], array[p_ttl_ms], array[p_request_id], array[p_metadata]);
            return;
        end if;
        if v_free then
            v_lease := fence.lease_request(
                p_lock, p_owner_id, p_mode, 'node', p_ttl_ms, null, p_request_id, p_metadata::json, p_principal);
            v_lease.granted_at := clock_timestamp(); -- after the snapshot, see fence.acquire_leases
            v_lease.waited_ms := 0;
            v_lease.expires_at := v_lease.granted_at + p_ttl_ms * interval '1 millisecond';
            v_lease.check_at := v_lease.expires_at;
            return next fence.grant(v_lease, v_newest);
            return;
        end if;
    end if;
    perform fence.note_jump(); -- before the request is decided otherwise
    perform set_config('synchronous_commit', 'off', true);
end
$$;
