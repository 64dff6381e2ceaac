-- fence.grant_lease(fence, request, waited_ms, above, here, policies, watched) → the lease, granted as requested
-- (fence.lease_request), with a token above all others of the name, to which the fence is raised (P3). A request in a
-- session has the expires_at of that. Or null, and nothing was changed: by the time of the grant, which is read after all
-- locks, the session has expired.
--
-- The caller has looked up the last four: fence.granted_above, whether this database issued the last token
-- (fence.minted_here), whether there are policies, and whether the lock is watched.
--
-- Every grant is made here, and those of many locks by one statement in fence.acquire_leases.
--
-- The caller holds the tree lock, the fence (fence.lock_fence) and the session, for a subtree all of
-- fence.lock_subtree. It has seen that nothing conflicts (fence.expire_or_blocker). The rule of
-- every grant:
--
-- A grant changes every row on which the admission of an older token rests. It waits for a writer that was admitted by
-- one of these rows, because that holds the row. A writer that is admitted later sees the change; with an older
-- snapshot (REPEATABLE READ, SERIALIZABLE) it fails (40001). A row that was only locked would let it pass (P3). The
-- rows are:
--
-- the name's own      The fence is raised to the token. A shared lease closes it: readers reject a dead writer, too.
-- below               The fences that a late holder may write to (fence.lock_below). They are closed. Unless the lease
--                     is of a subtree, these have adopted the token of an earlier subtree lease on the name.
-- above a subtree     The open fences of subtree leases, whose tokens could be adopted here. They stay open for other
--                     names, so they are changed without a difference.
--
-- If this very transaction was admitted with an older token, it is not any more.
--
-- The policy in force limits how long the lease may be held (hold_until).
--
-- Raises LF002 from mint, LF006 from jump.
create or replace function fence.grant_lease(
    p_fence fence.fences, p_request fence.leases, p_waited_ms bigint, p_above bigint, p_here boolean, p_policies boolean,
    p_watched boolean)
returns fence.leases
language plpgsql
as $$
declare
    v_newest bigint := greatest(p_fence.granted_token, p_fence.last_token, p_above);
    v_below  text[];
    v_lease  fence.leases := p_request;
begin
    if p_request.scope = 'subtree' then
        v_below := fence.lock_below(p_request.lock, null);
    elsif p_fence.open and p_fence.subtree_token = p_fence.granted_token then
        v_below := fence.lock_below(p_request.lock, p_fence.granted_token);
    end if;
    v_lease.granted_at := clock_timestamp();
    if p_request.expires_at <= v_lease.granted_at then
        return null;
    end if;

    if greatest(p_fence.granted_token, p_fence.last_token) = 0 then
        perform fence.note_new_fence(p_request.principal);
    end if;
    if p_request.scope = 'subtree' then
        update fence.fences f set open = f.open
        where f.resource = any (fence.ancestors(p_request.lock)) and f.open and f.subtree_token = f.granted_token;
        v_newest := greatest(v_newest, (
            select max(greatest(f.granted_token, f.last_token)) from fence.fences f
            where fence.is_below(f.resource, p_request.lock)));
    end if;
    if v_below is not null then
        update fence.fences f set open = false, adopted_token = null, admitted_in = null
        where f.resource = any (v_below);
    end if;

    if p_policies then
        v_lease.hold_until := fence.hold_until(p_request.lock, v_lease.granted_at, v_lease.granted_at);
    end if;
    v_lease.expires_at := least(v_lease.hold_until,
        coalesce(p_request.expires_at, v_lease.granted_at + p_request.ttl_ms * interval '1 millisecond'));
    v_lease.check_at := case when p_request.session_id is null then v_lease.expires_at
        else coalesce(v_lease.hold_until, 'infinity') end;
    if fence.lease_provider(p_request.lease_id) <> 'postgres' then -- fence.grant_elsewhere
        v_lease.expires_at := least(v_lease.expires_at + interval '1 minute', v_lease.hold_until);
    end if;
    if not p_here then
        perform fence.jump();
    end if;
    insert into fence.leases as l (
        lock, fencing_token, lease_id, owner_id, principal, mode, scope, ttl_ms, requested_ttl_ms, session_id,
        granted_at, waited_ms, expires_at, hold_until, check_at, request_id, metadata)
    values (
        v_lease.lock, fence.mint(v_newest), coalesce(v_lease.lease_id, gen_random_uuid()), v_lease.owner_id,
        v_lease.principal, v_lease.mode, v_lease.scope, v_lease.ttl_ms, v_lease.requested_ttl_ms, v_lease.session_id,
        v_lease.granted_at, p_waited_ms, v_lease.expires_at, v_lease.hold_until, v_lease.check_at, v_lease.request_id,
        v_lease.metadata)
    returning l.* into v_lease;
    update fence.fences f
    set granted_token = v_lease.fencing_token, open = v_lease.mode = 'exclusive', adopted_token = null, admitted_in = null,
        subtree_token = case v_lease.scope when 'subtree' then v_lease.fencing_token else f.subtree_token end
    where f.resource = v_lease.lock;
    if p_watched then
        perform fence.note_change(v_lease.lock);
    end if;
    return v_lease;
end
$$;
