-- fence.blocked_waiters(lock, mode, scope, ticket, limit) → the waiters that wait for a lease (ticket 0) or a waiter of this kind: the same
-- edges as fence.blockers has, seen from the other end. limit is for each of the three ways in which names are in each other's way; null: all.
--
-- It is inlined into the query that calls it.
create or replace function fence.blocked_waiters(p_lock text, p_mode text, p_scope text, p_ticket bigint, p_limit integer)
returns setof fence.waiters
language sql stable
as $$
    (select w.* from fence.live_waiters() w
    where w.lock = p_lock and w.ticket > p_ticket and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where w.lock > p_lock || '/' and w.lock < p_lock || '0' and w.ticket > p_ticket and p_scope = 'subtree' and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where w.lock = any (fence.ancestors(p_lock)) and w.ticket > p_ticket and w.scope = 'subtree' and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
$$;
