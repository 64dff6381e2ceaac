-- fence.live_leases() → the leases that have not ended and not run out by the clock, as fence.runs_until has it.
--
-- It is inlined into the query that calls it, which restricts it to locks or owners.
create or replace function fence.live_leases() returns setof fence.leases
language sql stable
as $$
    select l.* from fence.leases l
    where l.ended_at is null and case when l.session_id is null then l.expires_at else (
        select least(s.ended_at, s.expires_at, l.hold_until) from fence.sessions s where s.session_id = l.session_id) end > clock_timestamp()
$$;
