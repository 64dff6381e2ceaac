-- fence.grant_lease(fence, request, waited_ms) → the lease, granted as requested (fence.lease_request). Or null, and
-- nothing was changed: by the time of the grant, which is read after all locks, the session of the request has expired.
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
-- the name's own      The fence is raised to the token. A shared lease closes it: readers reject a dead writer, too. A
--                     subtree lease raises the fence of all names below; any other lease closes it.
-- below a subtree     The open fences, which are late holders', are closed: those of names and those of subtrees.
-- above a subtree     The open fences of subtrees, whose tokens could write here. They stay open for other names, so
--                     they are changed without a difference.
--
-- A fence below that is closed decides nothing: an earlier subtree's token rests on the fence of that subtree. If this
-- very transaction was admitted with an older token, it is not any more.
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
    v_newest   bigint := greatest(p_fence.granted_token, p_fence.last_token);
    v_below    text[];
    v_subtrees boolean;
    v_now      timestamptz;
    v_until    timestamptz;
    v_check    timestamptz;
    v_hold     timestamptz;
    v_lease    fence.leases;
begin
    if p_request.scope = 'subtree' then
        v_below := array(
            select f.resource from fence.fences f
            where fence.is_below(f.resource, p_request.lock) and (f.open or f.admitted_in = pg_current_xact_id())
            order by f.resource for update);
    end if;
    v_now := clock_timestamp();
    if fence.runs_until(p_request) <= v_now then
        return null;
    end if;

    if v_newest = 0 then
        perform fence.note_new_fence(p_request.principal);
    end if;
    if p_request.scope = 'subtree' then
        update fence.fences f set open = false, admitted_in = null where f.resource = any (v_below);
        update fence.subtrees s set open = false where s.open and fence.is_below(s.name, p_request.lock);
        update fence.subtrees s set open = s.open where s.open and s.name = any (fence.ancestors(p_request.lock));
        v_newest := greatest(v_newest, (
            select max(greatest(f.granted_token, f.last_token)) from fence.fences f
            where fence.is_below(f.resource, p_request.lock)));
    end if;
    v_subtrees := exists (select from fence.subtrees);
    if v_subtrees then
        v_newest := greatest(v_newest, (
            select max(s.granted_token) from fence.subtrees s
            where s.name = any (fence.ancestors(p_request.lock) || p_request.lock::text)));
    end if;

    v_hold := fence.hold_until(p_request.lock, v_now, v_now);
    v_until := least(v_hold, case when p_request.session_id is null
        then v_now + p_request.ttl_ms * interval '1 millisecond' else 'infinity' end);
    v_check := v_until;
    if fence.lease_provider(p_request.lease_id) <> 'postgres' then -- fence.grant_elsewhere
        v_until := least(v_until + interval '1 minute', v_hold);
    end if;
    perform fence.jump();
    update fence.leases l set kept = false -- the sweep deletes leases that are not the newest of their lock
    where l.lock = p_request.lock and l.fencing_token = p_fence.granted_token and l.kept;
    v_lease := (select g from fence.grant(array[row(
        p_request.lock, fence.mint(v_newest), coalesce(p_request.lease_id, gen_random_uuid()), p_request.owner_id,
        p_request.principal, p_request.mode, p_request.scope, p_request.ttl_ms, p_request.session_id, v_now, p_waited_ms,
        v_until, v_hold, v_check, p_request.request_id, p_request.metadata)::fence.new_lease]) g);
    if v_subtrees then
        -- A row that was made while this waited for the fence is not locked. A transaction that waits for the fence now
        -- may hold it: then it is closed, and skipped. If it is open, writers may hold it, under the subtree lease that
        -- this one replaces: it is closed after them.
        update fence.subtrees s
        set granted_token = case v_lease.scope when 'subtree' then v_lease.fencing_token else s.granted_token end,
            open = (v_lease.mode, v_lease.scope) = ('exclusive', 'subtree')
        where s.name = v_lease.lock and (s.open
            or s.name = (select o.name from fence.subtrees o where o.name = v_lease.lock for update skip locked));
    end if;
    perform fence.note_change(v_lease.lock);
    return v_lease;
end
$$;

-- fence.grant(leases) grants leases as they are given, with their tokens, and raises the fences to these (P3): a shared
-- lease closes its fence, any other opens it. If this very transaction was admitted with an older token, it is not any
-- more. → the leases. No lock repeats.
--
-- Every grant is made here. The caller holds the fences, and has seen that nothing conflicts; fence.grant_lease changes
-- subtrees, too.
create or replace function fence.grant(p_leases fence.new_lease[]) returns setof fence.leases
language plpgsql
as $$
begin
    return query
    with granted as (
        insert into fence.leases as l (
            lock, fencing_token, lease_id, owner_id, principal, mode, scope, ttl_ms, requested_ttl_ms, session_id,
            granted_at, waited_ms, expires_at, hold_until, check_at, request_id, metadata)
        select n.lock, n.fencing_token, n.lease_id, n.owner_id, n.principal, n.mode, n.scope, n.ttl_ms, n.ttl_ms,
            n.session_id, n.granted_at, n.waited_ms, n.expires_at, n.hold_until, n.check_at, n.request_id, n.metadata
        from unnest(p_leases) n
        returning l.*
    ), raised as (
        update fence.fences f
        set granted_token = l.fencing_token, open = l.mode = 'exclusive', admitted_in = null
        from granted l
        where f.resource = l.lock
    )
    select * from granted;
end
$$;
