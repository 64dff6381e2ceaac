-- fence.lock_subtrees(name) locks, until the end of the transaction, the fences of subtrees that concern a subtree
-- lease of this name: its own, which is made if missing, and the open ones of the names above and below. A writer holds
-- the one whose token it presents (fence.lock_write_tokens), whether its resource has a fence yet or not: so a grant of
-- the subtree waits for it (P3). The grant then changes these rows (fence.grant_lease).
--
-- Called after the gate was locked, which keeps them from being opened or made meanwhile, and before fence.lock_fence.
-- The sweep may delete the row of an unused name before it is locked here; then it is made again.
create or replace function fence.lock_subtrees(p_name text) returns void
language plpgsql
as $$
begin
    loop
        insert into fence.subtrees (name) values (p_name) on conflict do nothing;
        perform from fence.subtrees s
        where s.name = p_name or s.open and (s.name = any (fence.ancestors(p_name)) or fence.is_below(s.name, p_name))
        order by s.name for update;
        exit when exists (select from fence.subtrees s where s.name = p_name);
    end loop;
end
$$;
