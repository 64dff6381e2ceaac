-- fence.wait_vertices(steps, first, seen, ahead) → where the search continues from the steps with this index and later:
-- from the waits of the owners (ahead), or from all that others can wait for. One of each kind (lock, mode, scope) is
-- returned and stands for the others: the last in the queue (ahead), or the first. Those that seen stands for are left
-- out.
create or replace function fence.wait_vertices(
    p_steps fence.wait_step[], p_first integer, p_seen fence.wait_vertex[], p_ahead boolean)
returns fence.wait_vertex[]
language plpgsql stable
set enable_nestloop = off -- the planner takes an array for short
as $$
declare
    v_sign   integer := case when p_ahead then 1 else -1 end;
    v_owners text[] := array(select s.owner_id from unnest(p_steps[p_first:]) s);
begin
    return array(
        select row(k.lock, k.mode, k.scope, k.ticket, k.step)::fence.wait_vertex
        from (
            select distinct on (h.lock, h.mode, h.scope) h.lock, h.mode, h.scope, h.ticket,
                p_first - 1 + s.ordinality as step
            from fence.leases_and_waits(v_owners) h
            join unnest(v_owners) with ordinality s (owner_id, ordinality) on s.owner_id = h.owner_id
            where h.ticket > 0 or not p_ahead
            order by h.lock, h.mode, h.scope, v_sign * h.ticket desc
        ) k
        where not exists (
            select from unnest(p_seen) n
            where (n.lock, n.mode, n.scope) = (k.lock, k.mode, k.scope) and v_sign * n.ticket >= v_sign * k.ticket));
end
$$;
