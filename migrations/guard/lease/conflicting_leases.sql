-- fence.conflicting_leases(lock, mode, scope) → the leases that run and that one of this kind could not run beside: on the name itself,
-- subtree leases on names above, and for a subtree all below. Whether they have run out by the clock is for the caller to see.
create or replace function fence.conflicting_leases(p_lock text, p_mode text, p_scope text) returns setof fence.leases
language plpgsql rows 1
as $$
begin
    if p_mode = 'exclusive' then
        return query
        select l.* from fence.leases l where l.lock = p_lock and l.ended_at is null;
    else
        -- As the index leases_running has it: a reader does not read past the other readers.
        return query
        select l.* from fence.leases l
        where l.lock = p_lock and l.ended_at is null and case when l.mode = 'exclusive' then 0 else l.fencing_token end = 0;
    end if;

    if position('/' in p_lock) > 0 and exists (select from fence.subtrees) then
        return query
        select l.* from fence.leases l
        where l.lock = any (fence.ancestors(p_lock)) and l.ended_at is null and l.scope = 'subtree'
            and 'exclusive' in (l.mode, p_mode);
    end if;

    if p_scope = 'subtree' then
        return query
        select l.* from fence.leases l
        where l.lock > p_lock || '/' and l.lock < p_lock || '0' and l.ended_at is null and 'exclusive' in (l.mode, p_mode);
    end if;
end
$$;
