-- fence.has_subtrees(lock) → whether a subtree lease was requested for its name or one above it. The caller holds the gate
-- of the lock (fence.lock_gate), or asks again later.
create or replace function fence.has_subtrees(p_lock text) returns boolean
language plpgsql
as $$
begin
    return exists (select from fence.subtrees) and exists (
        select from fence.subtrees s where s.name = any (fence.ancestors(p_lock) || p_lock));
end
$$;
