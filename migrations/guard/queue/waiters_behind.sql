-- fence.waiters_behind(lock, mode, scope, ticket, limit) → the live waiters with a higher ticket whose request
-- conflicts with a lease of this kind (ticket 0) or with a waiter of this kind; the first ones of each branch, at most
-- limit; null: all. These are the edges of fence.blockers, from the other end; the branches are those of
-- fence.waiters_ahead.
--
-- The planner inlines it.
create or replace function fence.waiters_behind(
    p_lock text, p_mode text, p_scope text, p_ticket bigint, p_limit integer)
returns setof fence.waiters
language sql stable
as $$
    (select w.* from fence.live_waiters() w
    where w.lock = p_lock and w.ticket > p_ticket and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where w.lock = any (fence.ancestors(p_lock)) and w.ticket > p_ticket
        and 'exclusive' in (w.mode, p_mode) and w.scope = 'subtree'
    order by w.ticket limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where p_scope = 'subtree' and fence.is_below(w.lock, p_lock) and w.ticket > p_ticket
        and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
$$;
