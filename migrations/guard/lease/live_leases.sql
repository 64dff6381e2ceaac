-- fence.live_leases() → the leases that have not ended and that have not expired by the clock (fence.lease_until).
--
-- The planner inlines it. The caller restricts it to locks or owners.
create or replace function fence.live_leases() returns setof fence.leases
language sql stable
as $$
    select l.*
    from fence.leases l
    left join fence.sessions s on s.session_id = l.session_id
    where l.ended_at is null and fence.lease_until(l, s) > clock_timestamp()
$$;
