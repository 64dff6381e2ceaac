-- fence.within_gates(locks) → those of the locks whose gates are among the first 64 that this transaction takes
-- (fence.gates_held, fence.lock_gate).
create or replace function fence.within_gates(p_locks text[]) returns text[]
language plpgsql
as $$
declare
    v_held  bigint[];
    v_fit   text[] := '{}';
    v_above record;
    v_all   bigint[];
begin
    for v_above in
        select u.above, min(u.l) as lock
        from (select l, n, substring(l from '^(.*)/') as above from unnest(p_locks) with ordinality as u (l, n)) u
        where u.above is not null
        group by u.above order by min(u.n)
    loop
        v_held := coalesce(v_held, fence.gates_held());
        v_all := array(
            select unnest(v_held) union select hashtext(a)::bigint & 4294967295 from unnest(fence.ancestors(v_above.lock)) a);
        if cardinality(v_all) <= 64 then
            v_held := v_all;
            v_fit := v_fit || v_above.above;
        end if;
    end loop;
    return array(
        select l from unnest(p_locks) l where coalesce(substring(l from '^(.*)/') = any (v_fit), true));
end
$$;
