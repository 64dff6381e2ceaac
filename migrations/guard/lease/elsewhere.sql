-- fence.grant_elsewhere(request, lease_id, waited_ms) → one row, as of fence.acquire_lease: the outcome of a grant that
-- was made in Redis, and its data; no ticket. request is a row of fence.lease_request; lease_id is that of the key in
-- Redis (fence.lease_provider).
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
-- Redis (fence.note_ends_elsewhere). Only lists, and the exclusion of leases of other providers, depend on it.
--
-- Raises LF003 if the policy says that another lock service issues the tokens; LF002 from mint; LF007, see
-- fence.check_new_fence.
create or replace function fence.grant_elsewhere(
    p_request fence.leases, p_lease_id uuid, p_waited_ms bigint,
    out outcome text, out lease fence.leases, out left_ms bigint, out queue_length bigint, out ticket bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_ended  fence.leases;
    v_answer record;
begin
    p_request.lease_id := p_lease_id;
    p_request.waited_ms := p_waited_ms;
    if fence.owner_is_allowed(p_request) then
        perform fence.take_tree_lock(p_request.lock, 'node');
        perform fence.lock_fence(p_request.lock);
        perform fence.check_authority(p_request.lock);
        if exists (select from fence.policy_for(p_request.lock) p where p.require_live_lease) then
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
    end if;
    v_answer := fence.acquire_lease(p_request, 0, null, true);
    outcome := v_answer.outcome;
    lease := v_answer.lease;
    left_ms := v_answer.left_ms;
    queue_length := v_answer.queue_length;
    if outcome = 'granted' and lease.lease_id <> p_lease_id then -- by another provider, to the same request
        outcome := 'held';
        lease.lease_id := null;
        left_ms := fence.left_ms(lease);
        queue_length := 0;
    end if;
end
$$;

-- fence.note_ends_elsewhere(locks, tokens, lefts_ms) notes how long leases in Redis still run, as a gateway has just seen
-- there. Leases with 0 have ended: it expires them. The others are due for the next check when they would end, but not
-- before 30 s, so frequent renewals cost PostgreSQL nothing. It lists them until a minute after that check. Leases that
-- another transaction has locked are skipped, and stay due.
create or replace function fence.note_ends_elsewhere(p_locks text[], p_tokens bigint[], p_lefts_ms bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_now   timestamptz;
    v_lease fence.leases;
begin
    perform set_config('synchronous_commit', 'off', true);
    select array_agg(f.lock), array_agg(f.token), array_agg(f.left_ms) into p_locks, p_tokens, p_lefts_ms
    from (
        select s.* from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
        join fence.leases l on l.lock = s.lock and l.fencing_token = s.token
        where l.ended_at is null for update of l skip locked) f;
    v_now := clock_timestamp();
    update fence.leases l
    set check_at = v_now + greatest(s.left_ms, 30000) * interval '1 millisecond',
        expires_at = least(v_now + (greatest(s.left_ms, 30000) + 60000) * interval '1 millisecond', l.hold_until)
    from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
    where l.lock = s.lock and l.fencing_token = s.token and l.ended_at is null and s.left_ms > 0;
    for v_lease in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token, 'expired')::fence.lease_end
            from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
            join fence.leases l on l.lock = s.lock and l.fencing_token = s.token
            where l.ended_at is null and s.left_ms <= 0))
    loop
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;
end
$$;

-- fence.due_elsewhere(provider, lock, rows_max) → the leases that the provider keeps and that a gateway should ask it
-- for: those on the lock, or, if that is null, those whose check_at has passed.
create or replace function fence.due_elsewhere(p_provider text, p_lock text, p_rows_max integer)
returns table (lock text, owner_id text, lease_id uuid, fencing_token bigint)
language sql volatile
as $$
    select l.lock, l.owner_id, l.lease_id, l.fencing_token from fence.leases l
    where p_lock is null and l.ended_at is null and l.check_at < 'infinity' and l.check_at <= clock_timestamp()
        and fence.lease_provider(l.lease_id) = p_provider
    union all
    select l.lock, l.owner_id, l.lease_id, l.fencing_token from fence.leases l
    where l.lock = p_lock and l.ended_at is null and fence.lease_provider(l.lease_id) = p_provider
    limit p_rows_max
$$;

-- fence.status_elsewhere(lock, owner_id, lease_id, fencing_token) → fence.lease_status of a lease that another provider
-- keeps, and no longer knows.
create or replace function fence.status_elsewhere(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token)
$$;

-- fence.lease_provider(lease_id) → what keeps the lease: postgres, redis or redlock. Its lease_id says so: it is a
-- random UUID (version 4), or one of version 8 with the number of the provider in the half byte after the version; 3 is
-- that of a claim (fence.is_claim), in postgres. So it is known for the whole life of a lease, also after a change of
-- policy.
create or replace function fence.lease_provider(p_lease_id uuid) returns text
language sql immutable
return case substr(p_lease_id::text, 15, 2) when '81' then 'redis' when '82' then 'redlock' else 'postgres' end;
