-- fence.acquire_lease(request, wait_ms, gateway_id) → one row: the outcome and its data. request is a row of
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
--
-- Sent again with the same request_id, it returns the same lease while that runs, and takes over the ticket in the
-- queue. An expired lease is ended here and its lock granted at once: no sweep is waited for (P7). Every request queues
-- behind all waiters (P8), a try, too.
--
-- Only a grant must reach the disk before it is answered: a waiter that a crash loses queues again.
--
-- Raises LF003 if the policy says that another lock service issues the tokens; LF002 from mint; LF007, see
-- fence.check_new_fence and fence.check_session_size.
create or replace function fence.acquire_lease(
    p_request fence.leases, p_wait_ms integer, p_gateway_id uuid,
    out outcome text, out lease fence.leases, out left_ms bigint, out queue_length bigint, out ticket bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_fence      fence.fences;
    v_waiter     fence.waiters;
    v_session    fence.sessions;
    v_blocker    fence.leases;
    v_must_queue boolean;
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
    if p_request.scope = 'subtree' then
        perform fence.lock_subtree(p_request.lock, p_request.mode);
    else
        perform fence.take_tree_lock(p_request.lock, 'node');
    end if;
    v_fence := fence.lock_fence(p_request.lock);
    if fence.has_external_tokens(p_request.lock) then
        raise exception 'the tokens of % are issued by another lock service', p_request.lock using errcode = 'LF003';
    end if;

    if p_request.request_id is not null then
        select * into lease from fence.leases l
        where l.lock = p_request.lock collate "POSIX" and l.request_id = p_request.request_id;
        if found then
            outcome := coalesce(fence.request_conflict(lease, p_request),
                case when lease.ended_at is null and lease.expires_at > clock_timestamp() then 'granted'
                    else 'lost' end);
            if outcome = 'granted' and lease.waited_ms > 0 and not lease.adopted then
                update fence.leases l set adopted = true
                where l.lock = lease.lock and l.fencing_token = lease.fencing_token;
            end if;
            if outcome = 'lost' then
                lease.end_reason := coalesce(lease.end_reason, 'expired');
            end if;
            return;
        end if;
        select * into v_waiter from fence.waiters w
        where w.lock = p_request.lock collate "POSIX" and w.request_id = p_request.request_id;
        if found then
            outcome := fence.request_conflict(fence.waiter_request(v_waiter), p_request);
            if outcome is not null then
                return;
            end if;
            ticket := v_waiter.ticket;
        end if;
    end if;

    if p_request.session_id is not null then
        perform fence.check_session_size(p_request.session_id);
        select * into v_session from fence.sessions s where s.session_id = p_request.session_id for share;
        p_request.ttl_ms := v_session.ttl_ms;
        p_request.expires_at := coalesce(v_session.ended_at, v_session.expires_at, '-infinity');
    end if;

    if ticket is null and greatest(v_fence.granted_token, v_fence.last_token) = 0 then
        perform fence.check_new_fence(p_request.principal);
    end if;
    v_must_queue := fence.must_queue(
        p_request.lock, p_request.mode, p_request.scope, coalesce(ticket, 9223372036854775807));
    if not v_must_queue then
        v_blocker := fence.expire_or_blocker(p_request.lock, p_request.mode, p_request.scope);
    elsif p_wait_ms = 0 then
        v_blocker := fence.longest_running(array(
            select r from fence.conflicting_leases(p_request.lock, p_request.mode, p_request.scope) r));
    end if;

    if not v_must_queue and v_blocker.lock is null then
        lease := fence.grant_lease(v_fence, p_request, coalesce(
            extract(epoch from clock_timestamp() - v_waiter.queued_at) * 1000, 0)::bigint);
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
    if greatest(v_fence.granted_token, v_fence.last_token) = 0 or p_request.scope = 'subtree' then
        perform fence.note_unused(array[p_request.lock]);
    end if;
    left_ms := ceil(extract(epoch from v_blocker.expires_at - clock_timestamp()) * 1000);
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

-- fence.lease_request(lock, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata, principal) → a request, as a
-- lease that is not granted yet; fence.acquire_lease and fence.grant_lease take it.
create or replace function fence.lease_request(
    p_lock text, p_owner_id text, p_mode text, p_scope text, p_ttl_ms integer,
    p_session_id uuid, p_request_id text, p_metadata json, p_principal text default '')
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
