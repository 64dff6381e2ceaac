-- fence.live_waiters() → the waiters that count: the gateway is alive, so is the session, and the deadline has not
-- passed. Other waiters block nobody (P8).
--
-- The only code that says which waiters count. The planner inlines it; the caller restricts it to locks, owners or
-- tickets. It is no join: the gateways are read once, so skipping the waiters of a dead one costs little, and the
-- planner can choose only among the indexes of waiters.
create or replace function fence.live_waiters() returns setof fence.waiters
language sql stable
as $$
    select w.* from fence.waiters w
    where w.deadline_at > clock_timestamp()
        and w.gateway_id = any (array(select g.gateway_id from fence.gateways g
            where g.alive_until > clock_timestamp()))
        and (w.session_id is null or exists (
            select from fence.sessions s where s.session_id = w.session_id and fence.session_is_live(s)))
$$;
