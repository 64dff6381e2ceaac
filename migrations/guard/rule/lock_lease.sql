-- fence.lock_lease(lock, scope) locks what a call needs to end a lease of this scope: the gates, and the fence of the name,
-- also that of all names below. None is made. For a subtree, it waits for rows without the gate, as fence.lock_subtree
-- does: the holder's transaction may stay open.
create or replace function fence.lock_lease(p_lock text, p_scope text) returns void
language plpgsql
as $$
begin
    if p_scope = 'subtree' then
        perform fence.lock_subtree(p_lock, null);
    else
        perform fence.lock_gate(p_lock, 'node');
        perform from fence.subtrees s where s.name = p_lock for update;
        perform from fence.fences f where f.resource = p_lock for update;
    end if;
end
$$;
