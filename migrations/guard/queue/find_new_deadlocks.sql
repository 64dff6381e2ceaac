-- fence.find_new_deadlocks(tickets) is fence.find_deadlocks for waits that have just begun, at the end of their queues.
--
-- Most are of owners that have nothing else, and cost two look-ups: others wait for such an owner only behind it in its
-- queue, where they came later, so a search of their own follows.
create or replace function fence.find_new_deadlocks(p_tickets bigint[]) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_tickets bigint[] := array(
        select w.ticket from fence.waiters w
        where w.ticket = any (p_tickets) and ( -- limit 1: looked up for each wait, instead of read once for all
            (select true from fence.leases l
                where l.owner_id = w.owner_id and l.principal = w.principal and l.ended_at is null limit 1)
            or (select true from fence.waiters o
                where o.owner_id = w.owner_id and o.principal = w.principal and o.ticket <> w.ticket limit 1)));
begin
    if v_tickets <> '{}' then
        return query select fence.find_deadlocks(v_tickets);
    end if;
end
$$;
