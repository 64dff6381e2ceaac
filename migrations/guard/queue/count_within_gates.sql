-- fence.count_within_gates(locks, scopes, gates_max) → how many of these locks, from the first, take at most gates_max
-- gates together (fence.lock_gates); at least one. The lock table of a server with default settings holds some
-- thousands, for all.
create or replace function fence.count_within_gates(
    p_locks text[], p_scopes text[], p_gates_max integer)
returns integer
language plpgsql immutable
as $$
declare
    v_gates text[] := '{}';
begin
    for n in 1 .. coalesce(cardinality(p_locks), 0) loop
        v_gates := v_gates || array(
            select g from unnest(fence.ancestors(p_locks[n]) || case p_scopes[n] when 'subtree'
                then array[p_locks[n]] end) g
            where g <> all (v_gates));
        if cardinality(v_gates) > p_gates_max then
            return greatest(n - 1, 1);
        end if;
    end loop;
    return coalesce(cardinality(p_locks), 0);
end
$$;
