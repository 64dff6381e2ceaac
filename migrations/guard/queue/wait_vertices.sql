-- fence.wait_vertices(steps, first, seen, ahead) → where the search continues from the steps with this index and later:
-- from the waits of the owners (ahead), or from all that others can wait for. One of each kind (lock, mode, scope) is
-- returned and stands for the others: the last in the queue (ahead), or the first. Those that seen stands for are left
-- out.
create or replace function fence.wait_vertices(
    p_steps fence.wait_step[], p_first integer, p_seen fence.wait_vertex[], p_ahead boolean)
returns fence.wait_vertex[]
language plpgsql stable
as $$
declare
    v_sign integer := case when p_ahead then 1 else -1 end;
begin
    return array(
        select row(k.lock, k.mode, k.scope, k.ticket, k.step)::fence.wait_vertex
        from (
            select distinct on (v.lock, v.mode, v.scope) v.*
            from (
                select h.lock, h.mode, h.scope, h.ticket, p_first - 1 + s.ordinality as step, false as seen
                from unnest(p_steps[p_first:]) with ordinality s (principal, owner_id, lock, ticket, parent, ordinality)
                cross join lateral fence.leases_and_waits(s.principal, s.owner_id) h
                where h.ticket > 0 or not p_ahead
                union all
                select n.lock, n.mode, n.scope, n.ticket, n.step, true from unnest(p_seen) n
            ) v
            order by v.lock, v.mode, v.scope, v_sign * v.ticket desc, v.seen desc
        ) k
        where not k.seen);
end
$$;
