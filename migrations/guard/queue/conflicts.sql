-- fence.conflicts(wait, of) → whether the lease or the earlier waiter `of` could not run beside what `wait` is for: they are for one name, or one of them for a
-- subtree that the other is in, and one is exclusive. The same edges as fence.blockers and fence.blocked_waiters have, of two that are known.
create or replace function fence.conflicts(p_wait fence.wait_vertex, p_of fence.wait_vertex) returns boolean
language sql immutable
as $$
    select p_of.ticket < p_wait.ticket and 'exclusive' in (p_of.mode, p_wait.mode) and (
        p_of.lock = p_wait.lock
        or p_of.scope = 'subtree' and starts_with(p_wait.lock, p_of.lock || '/')
        or p_wait.scope = 'subtree' and starts_with(p_of.lock, p_wait.lock || '/'))
$$;
