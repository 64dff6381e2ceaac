-- fence.session_is_live(session) → whether the session has neither ended nor expired by the clock. The planner inlines
-- it.
create or replace function fence.session_is_live(p_session fence.sessions) returns boolean
language sql volatile
as $$
    select p_session.ended_at is null and p_session.expires_at > clock_timestamp()
$$;
