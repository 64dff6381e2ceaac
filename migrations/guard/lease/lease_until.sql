-- fence.lease_until(lease, session) → when a lease that has not ended expires. session is the lease's session, or null.
--
-- A lease without a session lasts until its expires_at, which is never after its hold_until. A lease in a session lasts
-- as long as the session, but no longer than its hold_until. If its session does not exist, it has expired.
--
-- Other code repeats only the first case, to read no session where there is none (fence.live_leases, fence.blockers).
-- The planner inlines it, so queries can join leases with sessions; for one lease there is fence.runs_until.
create or replace function fence.lease_until(p_lease fence.leases, p_session fence.sessions) returns timestamptz
language sql immutable
return case
        when p_lease.session_id is null then p_lease.expires_at
        when p_session.session_id is null then '-infinity'
        else least(p_session.ended_at, p_session.expires_at, p_lease.hold_until)
    end;
