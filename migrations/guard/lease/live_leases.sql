-- fence.live_leases() → the leases that have not ended and that have not expired by the clock (fence.lease_until).
--
-- The planner inlines it. The caller restricts it to locks or owners. It is no join: the planner would hash all sessions
-- where the caller has `exists (select from fence.live_leases() …)`.
create or replace function fence.live_leases() returns setof fence.leases
language sql stable
as $$
    select l.*
    from fence.leases l
    where l.ended_at is null and case
            when l.session_id is null then l.expires_at
            else (select fence.lease_until(l, s) from fence.sessions s where s.session_id = l.session_id)
        end > clock_timestamp()
$$;
