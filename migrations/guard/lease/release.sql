-- fence.release_lease(lock, owner_id, lease_id, fencing_token, gateway_id, may_wait) ends a lease, closes the fence, and
-- grants the lock to the waiters of the gateway whose turn it is, in one transaction: it passes from its holder to the next
-- owner with one commit. Others whose turn it is are woken. → a row for each row of fence.grant_waiters, each with the
-- result of the release; one without, if there are none. status is that of the lease after the call, released, or why the
-- caller could not release it; if this call ended the lease, mode is its mode, and age_ms its age since the grant. Sent
-- twice, it succeeds twice.
--
-- gateway_id  the caller's, whose waiters for the lock do not request a subtree: the locks for that would have to be taken
--             before those for the release. Null: the next is woken, wherever it waits
-- may_wait    whether it may wait for other transactions. A batch must not: status is undecided, and nothing was changed,
--             where it would have to, and where the lease is one of a subtree or does not exist
--
-- An expired lease that nobody has replaced may still be released. The fence closes: none of the holder's delayed
-- writes is admitted any more.
create or replace function fence.release_lease(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_gateway_id uuid, p_may_wait boolean)
returns table (
    status text, mode text, age_ms double precision,
    outcome text, ticket bigint, lease fence.leases, reason text, left_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_setting text := fence.commit_durably();
    v_fence   fence.fences;
    v_scope   text;
    v_found   record;
    v_now     timestamptz;
    v_passed  boolean := false;
begin
    if p_may_wait then
        perform fence.check_here(p_lock);
        v_fence := fence.lock_lease(p_lock, coalesce((
            select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    elsif fence.try_tree_lock(p_lock) then
        select f.* into v_fence from fence.fences f join fence.leases l on l.lock = f.resource
        where f.resource = p_lock and l.fencing_token = p_fencing_token and l.scope = 'node'
        for update skip locked;
    end if;
    if v_fence.resource is null and not p_may_wait then
        status := 'undecided';
        perform set_config('synchronous_commit', 'off', true);
        return next;
        return;
    end if;

    v_now := clock_timestamp();
    -- end_reason says that the lease runs, instead of ended_at: the indexes of running leases, which would read all
    -- readers of the lock, can't serve then.
    update fence.leases l
    set ended_at = coalesce(l.ended_at, greatest(l.granted_at, least(v_now, l.expires_at))), end_reason = 'released'
    where l.lock = p_lock and l.fencing_token = p_fencing_token and (l.lease_id, l.owner_id) = (p_lease_id, p_owner_id)
        and (l.end_reason is null and l.expires_at > v_now
            or coalesce(l.end_reason, 'expired') = 'expired'
                and l.fencing_token >= greatest(v_fence.granted_token, fence.granted_above(p_lock)))
    returning l.scope, l.mode, extract(epoch from l.ended_at - l.granted_at) * 1000 into v_scope, mode, age_ms;
    if found then
        status := 'released';
    else
        status := fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token);
    end if;

    select exists (select from fence.waiters w where w.lock = p_lock) as waiters,
        exists (select from fence.watched w where w.lock = p_lock) as watched
    into v_found;
    if v_found.watched and v_scope is not null then
        perform fence.note_change(p_lock);
    end if;
    if v_found.waiters and v_fence.resource is not null then -- it is made with the first waiter, perhaps just now
        return query
        select release_lease.status, release_lease.mode, release_lease.age_ms, g.*
        from fence.grant_waiters(
            v_fence, case when v_scope is not null then p_fencing_token end, v_scope, p_gateway_id, 'node') g;
        v_passed := found;
        if v_scope is null then
            perform set_config('synchronous_commit', v_setting, true); -- the release is durable, whatever was granted
        end if;
    elsif v_scope is not null then
        perform fence.close_fence(p_lock, p_fencing_token);
        if v_scope = 'subtree' or fence.has_subtrees(p_lock) then
            perform fence.wake(p_lock, v_scope, 0, p_gateway_id);
        end if;
    end if;
    if not v_passed then
        return next;
    end if;
end
$$;

-- fence.give_back(lock, owner_id, lease_id, fencing_token) releases a lease whose client was gone when it was granted,
-- and deletes its request_id, so that the request sent again is a new one. → the status of fence.release_lease; or
-- adopted, and nothing is changed: the request was sent again before, through another gateway, and that client has the
-- lease.
create or replace function fence.give_back(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_status text;
begin
    perform fence.check_here(p_lock);
    perform fence.take_tree_lock(p_lock, coalesce((
        select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    perform fence.lock_fence(p_lock);
    if exists (select from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token
        and l.adopted) then
        return 'adopted';
    end if;
    v_status := (
        select r.status from fence.release_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token, null, true) r limit 1);
    if v_status = 'released' then
        update fence.leases l set request_id = null where l.lock = p_lock and l.fencing_token = p_fencing_token;
    end if;
    return v_status;
end
$$;
