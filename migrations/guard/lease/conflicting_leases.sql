-- fence.conflicting_leases(lock, mode, scope) → the leases that have not ended and that conflict with a lease of this
-- kind. Expired ones are among them.
--
-- Two leases conflict if at least one is exclusive, and if they are for one name, or one is for a subtree that contains
-- the other's name. The branches are: leases of the name, for a reader and for a writer; subtrees above; names below a
-- subtree. fence.waiters_ahead has the same ones, fence.waiters_behind those of the other direction.
--
-- The first condition is that of the index leases_running, so a reader does not read past other readers. The planner
-- inlines the function.
create or replace function fence.conflicting_leases(p_lock text, p_mode text, p_scope text) returns setof fence.leases
language sql stable
as $$
    select l.* from fence.leases l
    where p_mode = 'shared' and l.lock = p_lock and l.ended_at is null
        and case when l.mode = 'exclusive' then 0 else l.fencing_token end = 0
    union all
    select l.* from fence.leases l
    where p_mode = 'exclusive' and l.lock = p_lock and l.ended_at is null
    union all
    select l.* from fence.leases l
    where exists (select from fence.subtrees) and l.lock = any (fence.ancestors(p_lock)) and l.ended_at is null
        and 'exclusive' in (l.mode, p_mode) and l.scope = 'subtree'
    union all
    select l.* from fence.leases l
    where p_scope = 'subtree' and fence.is_below(l.lock, p_lock) and l.ended_at is null
        and 'exclusive' in (l.mode, p_mode)
$$;
