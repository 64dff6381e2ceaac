-- fence.create_session(owner_id, ttl_ms, metadata, principal) → the new session.
create or replace function fence.create_session(
    p_owner_id text, p_ttl_ms integer, p_metadata json, p_principal text, out session fence.sessions)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_now   timestamptz := clock_timestamp();
    v_until timestamptz := v_now + p_ttl_ms * interval '1 millisecond';
begin
    perform fence.commit_durably();
    insert into fence.sessions as s (
        session_id, owner_id, ttl_ms, created_at, expires_at, check_at, metadata, principal)
    values (gen_random_uuid(), p_owner_id, p_ttl_ms, v_now, v_until, v_until, p_metadata, p_principal)
    returning s.* into session;
end
$$;

-- fence.keep_alive(session_id) → one row: the status of the session (live, released, expired, or not_found) and, if
-- that is live, the session. It now expires its TTL from now, and with it all its leases that run by then, and its
-- waiters; a lease no later than its hold_until, which the policy in force sets again. late_ms as of
-- fence.renew_leases; see there about the disk.
--
-- Waits for no lease and no waiter: one that another transaction has locked is moved by the next heartbeat, a third of
-- the TTL later. A lease that was left out twice expires by itself before its session.
create or replace function fence.keep_alive(
    p_session_id uuid, out status text, out session fence.sessions, out late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
declare
    v_policies boolean;
    v_now      timestamptz;
    v_locks    text[];
    v_tokens   bigint[];
    v_first    timestamptz;
begin
    select * into session from fence.sessions s where s.session_id = p_session_id for update;
    select array_agg(f.lock), array_agg(f.fencing_token), min(f.expires_at) into v_locks, v_tokens, v_first
    from (
        select l.lock, l.fencing_token, l.expires_at from fence.leases l
        where l.session_id = p_session_id and l.ended_at is null
        for update of l skip locked) f;
    -- Before the session is judged, as in fence.renew_leases, and after the leases are locked: who has locked one to
    -- replace it has seen that it had expired, and then the session has, too.
    v_now := clock_timestamp();
    status := coalesce(fence.session_lost(session), 'live');
    if status in ('live', 'expired') then
        late_ms := fence.late_ms(session.ttl_ms, session.expires_at);
    end if;
    if status <> 'live' then
        return;
    end if;
    update fence.sessions s set expires_at = v_now + s.ttl_ms * interval '1 millisecond'
    where s.session_id = p_session_id
    returning s.* into session;
    v_policies := exists (select from fence.policies p where p.max_hold_ms is not null);
    update fence.leases l
    set hold_until = f.until, expires_at = least(session.expires_at, f.until), check_at = coalesce(f.until, 'infinity')
    from (
        select o.lock, o.fencing_token,
            case when v_policies then fence.hold_until(o.lock, o.granted_at, v_now) end as until
        from unnest(v_locks, v_tokens) as u (lock, token)
        join fence.leases o on o.lock = u.lock and o.fencing_token = u.token
        where o.expires_at > v_now) f
    where l.lock = f.lock and l.fencing_token = f.fencing_token;
    if v_first <= v_now then -- left out twice: for the sweep
        update fence.leases l set check_at = l.expires_at
        from unnest(v_locks, v_tokens) as u (lock, token)
        where l.lock = u.lock and l.fencing_token = u.token and l.expires_at <= v_now and l.check_at = 'infinity';
    end if;
    update fence.waiters w set session_until = session.expires_at
    where w.ticket = any (array(
        select o.ticket from fence.waiters o where o.session_id = p_session_id for update skip locked));
end
$$;

-- fence.end_session(session_id) → its status after the call: released, or expired if it had expired before, or
-- not_found. Sent twice, it succeeds twice. After its commit no lease is granted in the session, and its waiters do not
-- count any more; fence.settle_leases ends its leases one by one.
--
-- It waits for nothing but the session: an acquire that holds a fence waits for that, and must not wait for a transaction
-- that waits for its fence. A waiter that is being granted its lock finds the session ended.
create or replace function fence.end_session(p_session_id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_session fence.sessions;
begin
    perform fence.commit_durably();
    select * into v_session from fence.sessions s where s.session_id = p_session_id for update;
    if not found then
        return 'not_found';
    end if;
    if v_session.ended_at is not null then
        return v_session.end_reason;
    end if;
    update fence.sessions s
    set ended_at = least(clock_timestamp(), s.expires_at), check_at = '-infinity',
        end_reason = case when s.expires_at > clock_timestamp() then 'released' else 'expired' end
    where s.session_id = p_session_id
    returning s.* into v_session;
    update fence.waiters w set session_until = '-infinity'
    where w.ticket = any (array(
        select o.ticket from fence.waiters o where o.session_id = p_session_id for update skip locked));
    return v_session.end_reason;
end
$$;

-- fence.check_session_size(session_id): the session may have another lease. It may have about 10,000: a heartbeat, which
-- moves them all, takes a tenth of a second then (fence.keep_alive). One call in 64 counts them.
--
-- Raises LF007 beyond the bound.
create or replace function fence.check_session_size(p_session_id uuid) returns void
language plpgsql
as $$
declare
    c_leases_max constant integer := 10000;
begin
    if get_byte(uuid_send(gen_random_uuid()), 0) % 64 = 0 and c_leases_max <= (
        select count(*) from (
            select from fence.leases l where l.session_id = p_session_id and l.ended_at is null limit c_leases_max) l)
    then
        raise exception 'the session has about ten thousand leases, as many as one may: use another session'
            using errcode = 'LF007';
    end if;
end
$$;

-- fence.session_is_live(session) → whether the session has neither ended nor expired by the clock. The planner inlines
-- it.
create or replace function fence.session_is_live(p_session fence.sessions) returns boolean
language sql volatile
as $$
    select p_session.ended_at is null and p_session.expires_at > clock_timestamp()
$$;

-- fence.session_lost(session) → null for a live session; otherwise released or expired; not_found for no session.
create or replace function fence.session_lost(p_session fence.sessions) returns text
language plpgsql
as $$
begin
    return case
        when p_session.session_id is null then 'not_found'
        when not fence.session_is_live(p_session) then coalesce(p_session.end_reason, 'expired')
    end;
end
$$;
