-- fence.grant_provided(request, lease_id, waited_ms) → one row: the outcome of a grant that was made in Redis, and its
-- data. request is a row of fence.lease_request; lease_id is that of the key in Redis (fence.lease_provider).
--
-- outcome  granted      lease is the caller's; the fence is raised to its token (P3): from the commit on, whoever held the
--                       lock before is rejected, also one who still believes in a lease in Redis
--          held         another provider keeps a lease that is in the way, or others wait for one. lease is that lease,
--                       without its lease_id; left_ms is how long it runs, queue_length the number of waiters
--          lost, request_id_reused, request_id_changed, owner_refused  as of fence.acquire_lease
--          unsupported  the policy requires a live lease, and only Redis knows whether it is
--
-- The leases of the same provider on the lock have ended: otherwise Redis would not have granted this one.
--
-- expires_at of a lease in Redis is when PostgreSQL stops listing it: a minute after the TTL. Meanwhile a gateway asks
-- Redis (fence.settle_provided). Only lists, and the exclusion of leases of other providers, depend on it.
--
-- Raises LF003 if the policy says that another lock service issues the tokens; LF002 from mint; LF007, see
-- fence.check_new_fence.
create or replace function fence.grant_provided(
    p_request fence.leases, p_lease_id uuid, p_waited_ms bigint,
    out outcome text, out lease fence.leases, out left_ms bigint, out queue_length bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_fence fence.fences;
    v_ended fence.leases;
begin
    if not fence.owner_is_allowed(p_request) then
        outcome := 'owner_refused';
        return;
    end if;
    p_request.lease_id := p_lease_id;
    perform fence.commit_durably();
    perform fence.lock_gate(p_request.lock, 'node');
    v_fence := fence.lock_fence(p_request.lock);
    if fence.has_external_tokens(p_request.lock) then
        raise exception 'the tokens of % are issued by another lock service', p_request.lock using errcode = 'LF003';
    elsif exists (select from fence.policy_for(p_request.lock) p where p.require_live_lease) then
        perform fence.note_unused(array[p_request.lock]);
        outcome := 'unsupported';
        return;
    end if;

    for v_ended in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token, 'expired')::fence.lease_end from fence.leases l
            where l.lock = p_request.lock and l.ended_at is null
                and fence.lease_provider(l.lease_id) = fence.lease_provider(p_lease_id)
            for update))
    loop
        perform fence.wake(v_ended.lock, v_ended.scope, 0); -- waiters in PostgreSQL
    end loop;
    lease := fence.longest_running(array(
        select r from fence.conflicting_leases(p_request.lock, p_request.mode, p_request.scope) r));
    if lease.lock is not null
        or fence.must_queue(p_request.lock, p_request.mode, p_request.scope, 9223372036854775807)
    then
        perform fence.note_unused(array[p_request.lock]);
        outcome := 'held';
        left_ms := ceil(extract(epoch from lease.expires_at - clock_timestamp()) * 1000);
        queue_length := (select count(*) from fence.live_waiters() w where w.lock = p_request.lock);
        lease.lease_id := null;
        return;
    end if;
    select * into lease from fence.leases l
    where l.lock = p_request.lock collate "POSIX" and l.request_id = p_request.request_id;
    if found then
        outcome := coalesce(fence.request_conflict(lease, p_request), 'lost');
        lease.end_reason := coalesce(lease.end_reason, fence.expiry_reason(lease));
        return;
    end if;
    if greatest(v_fence.granted_token, v_fence.last_token) = 0 then
        perform fence.check_new_fence(p_request.principal);
    end if;
    perform fence.expire_or_blocker(p_request.lock, p_request.mode, p_request.scope);
    outcome := 'granted';
    lease := fence.grant_lease(v_fence, p_request, p_waited_ms);
end
$$;
