-- fence.expire_or_blocker(lock, mode, scope, may_wait) → the lease that blocks one of this kind; of several the one that
-- runs longest. Or null: then the conflicting ones had expired and are ended now, and the lock can be granted at once (P7).
-- If may_wait is false, and another transaction has locked one that has expired, nothing is ended: it returns that one.
--
-- That a lease runs is seen without locking it: while the fence is locked it can only be renewed, and still runs. That
-- it has expired is decided by a later statement, with the lease locked, because a renewal or the heartbeat of its session
-- may be moving it. Leases of sessions on other names are left to fence.settle_leases, which closes their fences.
create or replace function fence.expire_or_blocker(
    p_lock text, p_mode text, p_scope text, p_may_wait boolean default true)
returns fence.leases
language plpgsql
as $$
declare
    v_running fence.leases[] := array(select r from fence.conflicting_leases(p_lock, p_mode, p_scope) r);
    v_blocker fence.leases;
    v_lease   fence.leases;
begin
    if cardinality(v_running) = 0 then
        return null;
    end if;
    v_blocker := fence.longest_running(v_running);
    if v_blocker.lock is not null then
        return v_blocker;
    end if;

    for v_lease in select * from unnest(v_running) r order by r.lock, r.fencing_token loop
        if p_may_wait then
            perform from fence.leases l where l.lock = v_lease.lock and l.fencing_token = v_lease.fencing_token for update;
        elsif not fence.try_lease(v_lease.lock, v_lease.fencing_token) then
            return v_lease;
        end if;
    end loop;
    v_blocker := fence.longest_running(array(select r from fence.conflicting_leases(p_lock, p_mode, p_scope) r));
    if v_blocker.lock is not null then
        return v_blocker;
    end if;

    perform fence.end_leases(array(
        select row(l.lock, l.fencing_token, 'expired')::fence.lease_end
        from unnest(v_running) r
        join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
        where l.ended_at is null and (l.lock = p_lock or l.session_id is null)));
    return null;
end
$$;

-- fence.conflicting_leases(lock, mode, scope) → the leases that have not ended and that conflict with a lease of this
-- kind. Expired ones are among them.
--
-- Two leases conflict if at least one is exclusive, and if they are for one name, or one is for a subtree that contains
-- the other's name. The branches are: leases of the name, for a reader and for a writer; subtrees above; names below a
-- subtree. fence.waiters_ahead has the same ones, fence.waiters_behind those of the other direction.
--
-- The first condition is that of the index leases_running, so a reader does not read past other readers. The planner
-- inlines the function.
create or replace function fence.conflicting_leases(p_lock text, p_mode text, p_scope text) returns setof fence.leases
language sql stable
as $$
    select l.* from fence.leases l
    where p_mode = 'shared' and l.lock = p_lock and l.ended_at is null
        and case when l.mode = 'shared' then l.fencing_token else 0 end = 0
    union all
    select l.* from fence.leases l
    where p_mode = 'exclusive' and l.lock = p_lock and l.ended_at is null
    union all
    select l.* from fence.leases l
    where fence.has_subtrees(p_lock) and l.lock = any (fence.ancestors(p_lock)) and l.ended_at is null
        and 'exclusive' in (l.mode, p_mode) and l.scope = 'subtree'
    union all
    select l.* from fence.leases l
    where p_scope = 'subtree' and fence.is_below(l.lock, p_lock) and l.ended_at is null
        and 'exclusive' in (l.mode, p_mode)
$$;

-- fence.longest_running(leases) → the lease that runs longest among those that have not expired by the clock; null if all
-- have expired.
create or replace function fence.longest_running(p_leases fence.leases[]) returns fence.leases
language plpgsql
as $$
declare
    v_longest fence.leases;
    v_lease   fence.leases;
begin
    foreach v_lease in array p_leases loop
        if v_lease.expires_at > greatest(clock_timestamp(), v_longest.expires_at) then
            v_longest := v_lease;
        end if;
    end loop;
    return v_longest;
end
$$;
