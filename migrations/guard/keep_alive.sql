-- fence.keep_alive(session_id) → one row: the standing of the session (live, released, expired, or not_found) and, if that is live,
-- the session, which now expires its TTL from now, and all its leases with it. late_ms as of fence.renew. See there about the disk.
create or replace function fence.keep_alive(p_session_id uuid, out standing text, out session fence.sessions, out late_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    select * into session from fence.sessions s where s.session_id = p_session_id for update;
    standing := coalesce(fence.session_lost(session), 'live');
    if standing in ('live', 'expired') then
        late_ms := fence.late_ms(session.ttl_ms, session.expires_at);
    end if;
    if standing = 'live' then
        update fence.sessions s set expires_at = clock_timestamp() + s.ttl_ms * interval '1 millisecond'
        where s.session_id = p_session_id
        returning s.* into session;
    end if;
end
$$;
