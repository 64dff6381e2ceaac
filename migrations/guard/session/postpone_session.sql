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
