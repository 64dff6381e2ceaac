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
