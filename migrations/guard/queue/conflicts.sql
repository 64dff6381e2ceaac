-- fence.conflicts(wait, of) → whether the lease or the earlier waiter `of` conflicts with the request that `wait`
-- stands for. The rule of fence.conflicting_leases for two that are known.
create or replace function fence.conflicts(p_wait fence.wait_vertex, p_of fence.wait_vertex) returns boolean
language sql immutable
as $$
    select p_of.ticket < p_wait.ticket and 'exclusive' in (p_of.mode, p_wait.mode) and (
        p_of.lock = p_wait.lock
        or p_of.scope = 'subtree' and fence.is_below(p_wait.lock, p_of.lock)
        or p_wait.scope = 'subtree' and fence.is_below(p_of.lock, p_wait.lock))
$$;
