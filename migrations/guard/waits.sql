-- fence.waits(waiter) → whether it counts: its gateway lives, its session, too, and its time is not over. One that does not count holds
-- nobody up (P8).
create or replace function fence.waits(p_waiter fence.waiters) returns boolean
language plpgsql
as $$
begin
    return p_waiter.deadline_at > clock_timestamp()
        and exists (
            select from fence.gateways g where g.gateway_id = p_waiter.gateway_id and g.alive_until > clock_timestamp())
        and (p_waiter.session_id is null or exists (
            select from fence.sessions s
            where s.session_id = p_waiter.session_id and s.ended_at is null and s.expires_at > clock_timestamp()));
end
$$;
