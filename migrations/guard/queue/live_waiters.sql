-- fence.live_waiters() → the waiters that count: the gateway lives, the session, too, and the time is not over. One that does not count
-- holds nobody up (P8).
--
-- It is inlined into the query that calls it, which restricts it to locks, owners or tickets. It is no join: the gateways are read
-- once, so that passing over a dead one's waiters costs little, and the planner has nothing but the indexes of waiters to choose from.
create or replace function fence.live_waiters() returns setof fence.waiters
language sql stable
as $$
    select w.* from fence.waiters w
    where w.deadline_at > clock_timestamp()
        and w.gateway_id = any (array(select g.gateway_id from fence.gateways g where g.alive_until > clock_timestamp()))
        and (w.session_id is null or exists (
            select from fence.sessions s where s.session_id = w.session_id and s.ended_at is null and s.expires_at > clock_timestamp()))
$$;
