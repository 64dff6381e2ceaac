-- fence.find_deadlocks(tickets) → those of these waits that are in a cycle, see fence.wait_cycle. A gateway calls this
-- for each of its waits, once the wait is committed: of the waits of a cycle the last one sees all others. Nothing is
-- locked, and nobody waits for this.
--
-- In every cycle there is an owner that waits and has a lease or another wait besides. If there are many waits, those
-- are looked at first: they are few, or none.
create or replace function fence.find_deadlocks(p_tickets bigint[]) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    if cardinality(p_tickets) > 10 and not exists (
        with many as materialized (
            select w.ticket from fence.live_waiters() w
            where exists (select from fence.live_leases() l
                    where l.owner_id = w.owner_id and l.principal = w.principal)
                or exists (select from fence.live_waiters() o
                    where o.owner_id = w.owner_id and o.principal = w.principal and o.ticket <> w.ticket)
        )
        select from many m where (select c.tickets from fence.wait_cycle(m.ticket) c) is not null)
    then
        return;
    end if;
    return query
    select t from unnest(p_tickets) t where (select c.tickets from fence.wait_cycle(t) c) is not null;
end
$$;
