-- fence.wait_steps(vertices, known, owner, ahead, limit) → steps to the owners that the vertices wait for (ahead), or
-- that wait for them; without the owner of the step owner (null: none) and those of the known steps. If there are more
-- than limit rows to read, only that is returned: more.
create or replace function fence.wait_steps(
    p_vertices fence.wait_vertex[], p_known fence.wait_step[], p_owner fence.wait_step, p_ahead boolean, p_limit integer,
    out steps fence.wait_step[], out more boolean)
language plpgsql stable
as $$
begin
    if p_ahead then
        steps := array(
            select row(x.principal, x.owner_id, p.lock, p.ticket, p.step)::fence.wait_step
            from unnest(p_vertices) p cross join lateral fence.blockers(p.lock, p.mode, p.scope, p.ticket, null) x
            where (x.principal, x.owner_id) is distinct from (p_owner.principal, p_owner.owner_id)
                and (x.principal, x.owner_id) not in (select k.principal, k.owner_id from unnest(p_known) k)
            limit p_limit + 1);
    else
        steps := array(
            select row(x.principal, x.owner_id, x.lock, x.ticket, p.step)::fence.wait_step
            from unnest(p_vertices) p cross join lateral fence.waiters_behind(p.lock, p.mode, p.scope, p.ticket, null) x
            where (x.principal, x.owner_id) is distinct from (p_owner.principal, p_owner.owner_id)
                and (x.principal, x.owner_id) not in (select k.principal, k.owner_id from unnest(p_known) k)
            limit p_limit + 1);
    end if;
    more := cardinality(steps) > p_limit;
    steps := case when not more then array(
        select row(s.*)::fence.wait_step from (select distinct on (principal, owner_id) * from unnest(steps)
            order by principal, owner_id, ticket) s) end;
end
$$;
