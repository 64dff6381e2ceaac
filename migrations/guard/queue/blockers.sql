-- fence.blockers(lock, mode, scope, ticket, limit) → what is in the way of a wait: relation holds, the leases that run, or before, the
-- waiters with a lower ticket; place orders each of the two. With them it could not run, as they are on the name itself, for a subtree
-- above, or below where the wait is for a subtree. limit is for each of these, the first leases and the nearest waiters; null: all.
--
-- These are the edges of the graph in which deadlocks are found. It is inlined into the query that calls it.
create or replace function fence.blockers(p_lock text, p_mode text, p_scope text, p_ticket bigint, p_limit integer)
returns table (relation text, owner_id text, lock text, place bigint)
language sql stable
as $$
    (select 'holds', l.owner_id, l.lock::text, l.fencing_token::bigint from fence.live_leases() l
    where l.lock = p_lock and 'exclusive' in (l.mode, p_mode)
    order by l.fencing_token limit p_limit)
    union all
    (select 'holds', l.owner_id, l.lock::text, l.fencing_token::bigint from fence.live_leases() l
    where l.lock = any (fence.ancestors(p_lock)) and l.scope = 'subtree' and 'exclusive' in (l.mode, p_mode)
    order by l.fencing_token limit p_limit)
    union all
    (select 'holds', l.owner_id, l.lock::text, l.fencing_token::bigint from fence.live_leases() l
    where p_scope = 'subtree' and l.lock > p_lock || '/' and l.lock < p_lock || '0' and 'exclusive' in (l.mode, p_mode)
    order by l.fencing_token limit p_limit)
    union all
    (select 'before', w.owner_id, w.lock::text, w.ticket from fence.live_waiters() w
    where w.lock = p_lock and w.ticket < p_ticket and 'exclusive' in (w.mode, p_mode)
    order by w.ticket desc limit p_limit)
    union all
    (select 'before', w.owner_id, w.lock::text, w.ticket from fence.live_waiters() w
    where w.lock = any (fence.ancestors(p_lock)) and w.ticket < p_ticket and w.scope = 'subtree' and 'exclusive' in (w.mode, p_mode)
    order by w.ticket desc limit p_limit)
    union all
    (select 'before', w.owner_id, w.lock::text, w.ticket from fence.live_waiters() w
    where p_scope = 'subtree' and w.lock > p_lock || '/' and w.lock < p_lock || '0' and w.ticket < p_ticket and 'exclusive' in (w.mode, p_mode)
    order by w.ticket desc limit p_limit)
$$;
