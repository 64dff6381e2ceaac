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
        session_id, owner_id, ttl_ms, created_at, expires_at, check_at, metadata, principal, policies_seen)
    values (gen_random_uuid(), p_owner_id, p_ttl_ms, v_now, v_until, v_until, p_metadata, p_principal, -1)
    returning s.* into session;
end
$$;

-- fence.keep_alive(session_id) → one row: the status of the session (live, released, expired, or not_found) and, if
-- that is live, the session. It now expires its TTL from now, and all its leases with it, except those that reach their
-- hold_until, which the policy in force sets again: for those that run by the clock of that change. late_ms as of fence.renew_lease; see there about the disk.
--
-- Waits for no lease: one that another transaction has locked gets its hold_until by the next keepalive.
create or replace function fence.keep_alive(
    p_session_id uuid, out status text, out session fence.sessions, out late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_policies bigint;
    v_all      boolean;
    v_now      timestamptz;
begin
    select * into session from fence.sessions s where s.session_id = p_session_id for update;
    v_now := clock_timestamp(); -- before the session is judged, as in fence.renew_lease
    status := coalesce(fence.session_lost(session), 'live');
    if status in ('live', 'expired') then
        late_ms := fence.late_ms(session.ttl_ms, session.expires_at);
    end if;
    if status = 'live' then
        update fence.sessions s set expires_at = v_now + s.ttl_ms * interval '1 millisecond'
        where s.session_id = p_session_id
        returning s.* into session;
        v_policies := fence.policies_digest();
        if session.policies_seen <> v_policies then
            with changed as materialized (
                select l.lock, l.fencing_token, h.until
                from fence.leases l
                cross join lateral (select fence.hold_until(l.lock, l.granted_at, v_now) as until offset 0) h
                where l.session_id = p_session_id and l.ended_at is null and l.hold_until is distinct from h.until
            ), free as materialized (
                select l.lock, l.fencing_token, c.until
                from changed c join fence.leases l on l.lock = c.lock and l.fencing_token = c.fencing_token
                for update of l skip locked
            ), held as (
                update fence.leases l
                set hold_until = f.until, expires_at = coalesce(f.until, 'infinity'), check_at = coalesce(f.until, 'infinity')
                from free f
                where l.lock = f.lock and l.fencing_token = f.fencing_token and l.expires_at > clock_timestamp()
                returning 1
            )
            select count(*) = (select count(*) from changed) into v_all from held;
            if v_all then
                update fence.sessions s set policies_seen = v_policies where s.session_id = p_session_id;
            end if;
        end if;
    end if;
end
$$;

-- fence.end_session(session_id) → its status after the call: released, or expired if it had expired before, or
-- not_found. Sent twice, it succeeds twice. After its commit the session's leases no longer run; fence.settle_leases
-- ends them one by one.
--
-- Nothing but the session is locked: an acquire that holds a fence looks at conflicting sessions, and must not wait for
-- a transaction that waits for its fence.
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
    return v_session.end_reason;
end
$$;

-- fence.postpone_session(session_id, pause): a sweep leaves the session alone for the pause, unless it is settled.
create or replace function fence.postpone_session(p_session_id uuid, p_pause interval) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    update fence.sessions s
    set check_at = clock_timestamp() + p_pause
    where s.session_id = p_session_id and not s.settled;
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
