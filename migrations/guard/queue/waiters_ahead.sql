-- fence.waiters_ahead(lock, mode, scope, ticket, limit) → the live waiters with a lower ticket whose request conflicts
-- with a lease of this kind (fence.conflicting_leases); the nearest ones of each branch, at most limit; null: all.
--
-- A reader and a writer have branches of their own for the name: an index holds the writers of each queue, so a reader
-- does not read past other readers. The planner inlines the function.
create or replace function fence.waiters_ahead(
    p_lock text, p_mode text, p_scope text, p_ticket bigint, p_limit integer)
returns setof fence.waiters
language sql stable
as $$
    (select w.* from fence.live_waiters() w
    where p_mode = 'shared' and w.lock = p_lock and w.ticket < p_ticket and w.mode = 'exclusive'
    order by w.ticket desc limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where p_mode = 'exclusive' and w.lock = p_lock and w.ticket < p_ticket
    order by w.ticket desc limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where w.lock = any (fence.ancestors(p_lock)) and w.ticket < p_ticket
        and 'exclusive' in (w.mode, p_mode) and w.scope = 'subtree'
    order by w.ticket desc limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where p_scope = 'subtree' and fence.is_below(w.lock, p_lock) and w.ticket < p_ticket
        and 'exclusive' in (w.mode, p_mode)
    order by w.ticket desc limit p_limit)
$$;
