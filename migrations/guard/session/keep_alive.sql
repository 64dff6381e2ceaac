-- fence.keep_alive(session_id) → one row: the status of the session (live, released, expired, or not_found) and, if
-- that is live, the session. It now expires its TTL from now, and all its leases with it, except those that reach their
-- hold_until, which the policy in force sets again. late_ms as of fence.renew_lease; see there about the disk.
--
-- Waits for no lease: one that another transaction has locked gets its hold_until by the next keepalive.
create or replace function fence.keep_alive(
    p_session_id uuid, out status text, out session fence.sessions, out late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_policies bigint;
    v_limited  text[];
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
                cross join lateral (select fence.hold_until(l.lock, l.granted_at) as until offset 0) h
                where l.session_id = p_session_id and l.ended_at is null
                    and coalesce(l.hold_until, 'infinity') > clock_timestamp() and l.hold_until is distinct from h.until
            ), free as materialized (
                select l.lock, l.fencing_token, c.until
                from changed c join fence.leases l on l.lock = c.lock and l.fencing_token = c.fencing_token
                for update of l skip locked
            ), held as (
                update fence.leases l set hold_until = f.until from free f
                where l.lock = f.lock and l.fencing_token = f.fencing_token
                returning l.lock, l.hold_until
            )
            select array_agg(h.lock) filter (where h.hold_until is not null), count(*) = (select count(*) from changed)
            into v_limited, v_all from held h;
            perform fence.limit_fences(v_limited);
            if v_all then
                update fence.sessions s set policies_seen = v_policies where s.session_id = p_session_id;
            end if;
        end if;
    end if;
end
$$;
