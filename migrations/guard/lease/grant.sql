-- fence.grant_lease(fence, request, waited_ms) → the lease, granted as requested (fence.lease_request). A request in a
-- session has the expires_at of that. Or null, and nothing was changed: by the time of the grant, which is read after all
-- locks, the session has expired.
--
-- The caller holds the tree lock, the fence (fence.lock_fence) and the session, for a subtree all of
-- fence.lock_subtree, and has seen that nothing conflicts (fence.expire_or_blocker). Every grant of this schema keeps
-- this rule:
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
    p_fence fence.fences, p_request fence.leases, p_waited_ms bigint)
returns fence.leases
language plpgsql
as $$
declare
    v_newest bigint := greatest(p_fence.granted_token, p_fence.last_token, fence.granted_above(p_request.lock));
    v_below  text[];
    v_now    timestamptz;
    v_until  timestamptz;
    v_check  timestamptz;
    v_hold   timestamptz;
    v_lease  fence.leases;
begin
    if p_request.scope = 'subtree' then
        v_below := fence.lock_below(p_request.lock, null);
    elsif p_fence.open and p_fence.subtree_token = p_fence.granted_token then
        v_below := fence.lock_below(p_request.lock, p_fence.granted_token);
    end if;
    v_now := clock_timestamp();
    if p_request.expires_at <= v_now then
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

    v_hold := fence.hold_until(p_request.lock, v_now, v_now);
    v_until := least(v_hold, coalesce(p_request.expires_at, v_now + p_request.ttl_ms * interval '1 millisecond'));
    v_check := case when p_request.session_id is null then v_until else coalesce(v_hold, 'infinity') end;
    if fence.lease_provider(p_request.lease_id) <> 'postgres' then -- fence.grant_elsewhere
        v_until := least(v_until + interval '1 minute', v_hold);
    end if;
    perform fence.jump();
    update fence.leases l set kept = false -- the sweep deletes leases that are not the newest of their lock
    where l.lock = p_request.lock and l.fencing_token = p_fence.granted_token and l.kept;
    v_lease := p_request;
    v_lease.granted_at := v_now;
    v_lease.waited_ms := p_waited_ms;
    v_lease.expires_at := v_until;
    v_lease.hold_until := v_hold;
    v_lease.check_at := v_check;
    v_lease := fence.grant(v_lease, v_newest);
    perform fence.note_change(v_lease.lock);
    return v_lease;
end
$$;

-- fence.grant(lease, newest) grants a lease, with a token above newest, and raises the fence to that (P3): a shared lease
-- closes the fence, any other opens it. If this very transaction was admitted with an older token, it is not any more. → the
-- lease, as it was stored. The argument is a request (fence.lease_request) with the times of the lease.
--
-- Every grant is made here, and those of many locks by one statement in fence.acquire_leases. The caller holds the
-- fence, and has seen that nothing conflicts; fence.grant_lease changes the fences above and below, too. No statement reads
-- the lease back or takes an array apart: each would cost as much as the insert.
create or replace function fence.grant(p_lease fence.leases, p_newest bigint) returns fence.leases
language plpgsql
as $$
begin
    p_lease.fencing_token := fence.mint(p_newest);
    p_lease.lease_id := coalesce(p_lease.lease_id, gen_random_uuid());
    insert into fence.leases as l (
        lock, fencing_token, lease_id, owner_id, principal, mode, scope, ttl_ms, requested_ttl_ms, session_id,
        granted_at, waited_ms, expires_at, hold_until, check_at, request_id, metadata)
    values (
        p_lease.lock, p_lease.fencing_token, p_lease.lease_id, p_lease.owner_id, p_lease.principal, p_lease.mode,
        p_lease.scope, p_lease.ttl_ms, p_lease.requested_ttl_ms, p_lease.session_id, p_lease.granted_at,
        p_lease.waited_ms, p_lease.expires_at, p_lease.hold_until, p_lease.check_at, p_lease.request_id,
        p_lease.metadata)
    returning l.* into p_lease;
    update fence.fences f
    set granted_token = p_lease.fencing_token, open = p_lease.mode = 'exclusive', adopted_token = null, admitted_in = null,
        subtree_token = case p_lease.scope when 'subtree' then p_lease.fencing_token else f.subtree_token end
    where f.resource = p_lease.lock;
    return p_lease;
end
$$;
