-- fence.acquire_lease(request, wait_ms, gateway_id, may_wait) → one row: the outcome and its data. request is a row of
-- fence.lease_request; wait_ms 0 is a try.
--
-- outcome  granted             lease is the caller's; the fence is raised to its token (P3)
--          held                lease is the blocking one, without its lease_id, or null if the lock is free and others
--                              are ahead; left_ms is how long it runs, queue_length the number of waiters for the lock
--          queued              the caller waits with ticket, until wait_ms have passed (fence.grant_next); for the
--                              first in the queue, left_ms is how long the blocking lease runs; for one that had the
--                              ticket already, lease.granted_at is when it joined the queue. Then the gateway looks for
--                              a cycle (fence.find_deadlocks)
--          lost                the lease that this request_id was granted before has ended, see lease.end_reason
--          request_id_reused   another owner or principal used the request_id
--          owner_refused       the policy does not let the principal use the owner_id
--          request_id_changed  the request_id was used with another mode, scope, ttl_ms, session_id or metadata
--          session_lost        the session has ended, see lease.end_reason: released, expired, or null if there was
--                              none
--          undecided           nothing was changed. may_wait is false, and this would have to wait for another
--                              transaction; or the name is new, and this is no claim; or its tokens are another
--                              service's
--
-- may_wait  whether it may wait for other transactions. A batch must not, because one call would delay all others. It
--           is for names alone, and in no session.
--
-- Sent again with the same request_id, it returns the same lease while that runs, and takes over the ticket in the
-- queue. An expired lease is ended here and its lock granted at once: no sweep is waited for (P7). Every request queues
-- behind all waiters (P8), a try, too.
--
-- Only a grant must reach the disk before it is answered: a waiter that a crash loses queues again.
--
-- Raises LF003 if the policy says that another lock service issues the tokens; LF002 from mint; LF006 from jump; LF007,
-- see fence.check_new_fence and fence.check_session_size.
create or replace function fence.acquire_lease(
    p_request fence.leases, p_wait_ms integer, p_gateway_id uuid, p_may_wait boolean,
    out outcome text, out lease fence.leases, out left_ms bigint, out queue_length bigint, out ticket bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_fence   fence.fences;
    v_waiter  fence.waiters;
    v_session fence.sessions;
    v_blocker fence.leases;
    v_new     boolean;
    v_above   bigint;
    v_trees   boolean;
    v_found   record;
    v_behind  boolean := false;
    v_claim   boolean := coalesce(fence.is_claim(p_request.lease_id), false);
begin
    if not fence.owner_is_allowed(p_request) then
        outcome := 'owner_refused';
        return;
    end if;
    perform fence.commit_durably();
    if p_request.session_id is not null and not exists (
        select from fence.leases l where l.lock = p_request.lock collate "POSIX" and l.request_id = p_request.request_id)
    then
        -- A refusal leaves no trace, not even a fence. The session is judged again below, after all locks.
        select * into v_session from fence.sessions s where s.session_id = p_request.session_id;
        if fence.session_lost(v_session) is not null then
            outcome := 'session_lost';
            lease.end_reason := nullif(fence.session_lost(v_session), 'not_found');
            return;
        end if;
    end if;
    if p_may_wait then
        if p_request.scope = 'subtree' then
            v_blocker := fence.lock_subtree(p_request.lock, p_request.mode);
        else
            perform fence.take_tree_lock(p_request.lock, 'node');
        end if;
        v_fence := fence.lock_fence(p_request.lock);
    elsif fence.try_tree_lock(p_request.lock) then
        select * into v_fence from fence.fences f where f.resource = p_request.lock for update skip locked;
    end if;
    v_new := coalesce(greatest(v_fence.granted_token, v_fence.last_token), 0) = 0;
    v_above := fence.granted_above(p_request.lock);
    v_trees := p_request.scope = 'subtree' or v_above is not null;
    select exists (select from fence.policies) as policies, exists (select from fence.minted_here()) as here,
        exists (select from fence.waiters w where w.lock = p_request.lock) as waiters,
        exists (select from fence.watched w where w.lock = p_request.lock) as watched,
        exists (
            select from fence.leases e
            where e.lock = p_request.lock collate "POSIX" and e.request_id = p_request.request_id) as again,
        l.mode, l.ended_at is not null as ended
    into v_found
    from (select) one left join fence.leases l on l.lock = p_request.lock and l.fencing_token = v_fence.granted_token;
    if not p_may_wait and not v_found.here then
        perform fence.note_jump();
    end if;
    if not p_may_wait and (v_fence.resource is null or v_new and not v_claim
        or v_found.policies and fence.has_external_tokens(p_request.lock)
        or v_fence.open and v_fence.subtree_token = v_fence.granted_token
            and not fence.try_below(p_request.lock, v_fence.granted_token))
    then
        outcome := 'undecided';
        perform set_config('synchronous_commit', 'off', true);
        return;
    elsif v_found.policies then
        perform fence.check_authority(p_request.lock);
    end if;

    if v_found.again then
        select * into lease from fence.leases l
        where l.lock = p_request.lock collate "POSIX" and l.request_id = p_request.request_id;
        outcome := coalesce(fence.request_conflict(lease, p_request),
            case when lease.ended_at is null and lease.expires_at > clock_timestamp() then 'granted' else 'lost' end);
        if outcome = 'granted' and lease.waited_ms > 0 and not lease.adopted then
            if not p_may_wait and not fence.try_lease(lease.lock, lease.fencing_token) then
                outcome := 'undecided';
                return;
            end if;
            update fence.leases l set adopted = true
            where l.lock = lease.lock and l.fencing_token = lease.fencing_token;
        end if;
        if outcome = 'lost' then
            lease.end_reason := coalesce(lease.end_reason, 'expired');
        end if;
        return;
    elsif v_found.waiters and p_request.request_id is not null then
        select * into v_waiter from fence.waiters w
        where w.lock = p_request.lock collate "POSIX" and w.request_id = p_request.request_id;
        ticket := v_waiter.ticket;
        outcome := case when found then fence.request_conflict(fence.waiter_request(v_waiter), p_request) end;
        if outcome is not null then
            return;
        end if;
    end if;

    if p_request.session_id is not null then
        perform fence.check_session_size(p_request.session_id);
        select * into v_session from fence.sessions s where s.session_id = p_request.session_id for share;
        p_request.ttl_ms := v_session.ttl_ms;
        p_request.expires_at := coalesce(v_session.ended_at, v_session.expires_at, '-infinity');
    end if;

    if ticket is null and v_new and not v_claim then
        perform fence.check_new_fence(p_request.principal);
    end if;
    if v_found.waiters or v_trees then
        v_behind := fence.must_queue(
            p_request.lock, p_request.mode, p_request.scope, coalesce(ticket, 9223372036854775807));
    end if;
    if v_behind then
        v_blocker := case when p_wait_ms = 0 then fence.longest_running(array(
            select r from fence.conflicting_leases(p_request.lock, p_request.mode, p_request.scope) r)) end;
    elsif v_blocker.lock is null then
        if v_trees or fence.may_be_held(v_found.mode, v_found.ended, v_fence.granted_token, p_request.mode) then
            v_blocker := fence.expire_or_blocker(p_request.lock, p_request.mode, p_request.scope, p_may_wait);
            if not p_may_wait and v_blocker.expires_at <= clock_timestamp() then
                outcome := 'undecided';
                perform set_config('synchronous_commit', 'off', true);
                return;
            end if;
        end if;
        if v_blocker.lock is null then
            lease := fence.grant_lease(v_fence, p_request, coalesce(
                extract(epoch from clock_timestamp() - v_waiter.queued_at) * 1000, p_request.waited_ms, 0)::bigint,
                v_above, v_found.here, v_found.policies, v_found.watched);
        end if;
    end if;

    if lease.lock is not null then
        outcome := 'granted';
        if ticket is not null then
            delete from fence.waiters w where w.ticket = acquire_lease.ticket;
            perform fence.wake(p_request.lock, p_request.scope, fence.left_ms(lease));
        end if;
        return;
    end if;
    if p_request.session_id is not null and fence.session_lost(v_session) is not null then
        outcome := 'session_lost';
        lease.end_reason := nullif(fence.session_lost(v_session), 'not_found');
        perform fence.note_unused(array[p_request.lock]);
        return;
    end if;

    perform set_config('synchronous_commit', 'off', true);
    if v_new or p_request.scope = 'subtree' then
        perform fence.note_unused(array[p_request.lock]);
    end if;
    left_ms := case when v_blocker.lock is not null then fence.left_ms(v_blocker) end;
    if p_wait_ms = 0 then
        outcome := 'held';
        lease := v_blocker;
        lease.lease_id := null;
        queue_length := (select count(*) from fence.live_waiters() w where w.lock = p_request.lock);
    elsif ticket is null then
        outcome := 'queued';
        ticket := fence.enqueue(p_request, p_wait_ms, p_gateway_id);
    else
        outcome := 'queued';
        lease.granted_at := v_waiter.queued_at;
        update fence.waiters w
        set gateway_id = p_gateway_id, deadline_at = clock_timestamp() + p_wait_ms * interval '1 millisecond'
        where w.ticket = acquire_lease.ticket;
    end if;
end
$$;

-- fence.may_be_held(newest_mode, newest_ended, granted_token, mode) → whether a lease on the name may be in the way of one of
-- this mode, so that fence.expire_or_blocker has to look. newest_… are of the lease of granted_token. A grant has ended all
-- that was in its way: beside the newest lease only readers run, and only if that is a reader's. The planner inlines it.
create or replace function fence.may_be_held(
    p_newest_mode text, p_newest_ended boolean, p_granted_token bigint, p_mode text) returns boolean
language sql immutable
return case p_newest_mode when 'exclusive' then not p_newest_ended when 'shared' then p_mode = 'exclusive'
    else p_granted_token > 0 end;

-- fence.check_authority(lock) raises LF003 if the policy says that another lock service issues the tokens of the name.
create or replace function fence.check_authority(p_lock text) returns void
language plpgsql
as $$
begin
    if fence.has_external_tokens(p_lock) then
        raise exception 'the tokens of % are issued by another lock service', p_lock using errcode = 'LF003';
    end if;
end
$$;

-- fence.try_lease(lock, token) → whether it has locked the lease, without a wait for another transaction.
create or replace function fence.try_lease(p_lock text, p_token bigint) returns boolean
language plpgsql
as $$
begin
    perform from fence.leases l where l.lock = p_lock and l.fencing_token = p_token for update skip locked;
    return found;
end
$$;

-- fence.lease_request(lock, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata, principal, lease_id) → a
-- request, as a lease that is not granted yet; fence.acquire_lease and fence.grant_lease take it. Without a lease_id the
-- lease gets a random one.
create or replace function fence.lease_request(
    p_lock text, p_owner_id text, p_mode text, p_scope text, p_ttl_ms integer,
    p_session_id uuid, p_request_id text, p_metadata json, p_principal text default '', p_lease_id uuid default null)
returns fence.leases
language plpgsql
as $$
declare
    v_request fence.leases;
begin
    v_request.lock := p_lock;
    v_request.owner_id := p_owner_id;
    v_request.mode := p_mode;
    v_request.scope := p_scope;
    v_request.ttl_ms := p_ttl_ms;
    v_request.requested_ttl_ms := p_ttl_ms;
    v_request.session_id := p_session_id;
    v_request.request_id := p_request_id;
    v_request.metadata := p_metadata;
    v_request.principal := p_principal;
    v_request.lease_id := p_lease_id;
    return v_request;
end
$$;

-- fence.request_conflict(earlier, request) → why an acquire is not the one before it with the same request_id: the outcome
-- request_id_reused, if that was another owner's, or request_id_changed, if it had another mode, scope, TTL, session or
-- metadata; null if it is. earlier is that request, or the lease that it was granted, whose ttl_ms a renewal may have
-- changed. A lease in a session has no TTL of its own.
create or replace function fence.request_conflict(p_earlier fence.leases, p_request fence.leases) returns text
language plpgsql immutable
as $$
begin
    return case
        when (p_earlier.owner_id, p_earlier.principal) <> (p_request.owner_id, p_request.principal)
            then 'request_id_reused'
        when (p_earlier.mode, p_earlier.scope, p_earlier.session_id, p_earlier.metadata::text)
                is distinct from (p_request.mode, p_request.scope, p_request.session_id, p_request.metadata::text)
            or p_request.session_id is null and p_earlier.requested_ttl_ms <> p_request.ttl_ms
            then 'request_id_changed'
    end;
end
$$;

-- fence.owner_is_allowed(request) → whether the policy lets the principal of the request use its owner_id
-- (require_principal_owner). A request to a gateway that asks for no credential has no principal: it may use any.
create or replace function fence.owner_is_allowed(p_request fence.leases) returns boolean
language plpgsql stable
as $$
begin
    -- The common case is an expression without a query, which costs a tenth.
    if p_request.principal = '' or starts_with(p_request.owner_id || '/', p_request.principal || '/') then
        return true;
    end if;
    return not exists (select from fence.policies p where p.require_principal_owner)
        or not exists (select from fence.policy_for(p_request.lock) p where p.require_principal_owner);
end
$$;
