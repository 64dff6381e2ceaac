-- fence.session_lost(session) → null for a session that lives; else how it ended: released or expired; not_found where there is none.
create or replace function fence.session_lost(p_session fence.sessions) returns text
language plpgsql
as $$
begin
    return case
        when p_session.session_id is null then 'not_found'
        when p_session.ended_at is not null then p_session.end_reason
        when p_session.expires_at <= clock_timestamp() then 'expired'
    end;
end
$$;
