-- fence.lock_gates(locks, scopes) takes the gates of several locks, see fence.lock_gate.
--
-- All keys are taken in the order of their hashes, so no two calls wait for each other in a cycle. Names with equal
-- hashes wait for each other without need; nothing else happens.
create or replace function fence.lock_gates(p_locks text[], p_scopes text[]) returns void
language plpgsql
as $$
declare
    v_key record;
begin
    for v_key in
        select k.hash, bool_or(k.alone) as alone
        from (
            select hashtext(a) as hash, false as alone from unnest(p_locks) l, unnest(fence.ancestors(l)) a
            union all
            select hashtext(u.lock), true from unnest(p_locks, p_scopes) as u (lock, scope) where u.scope = 'subtree') k
        group by k.hash
        order by k.hash
    loop
        if v_key.alone then
            perform fence.lock_gate_alone(v_key.hash);
        else
            perform pg_advisory_xact_lock_shared(1718511205, v_key.hash);
        end if;
    end loop;
end
$$;
