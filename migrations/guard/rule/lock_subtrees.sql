-- fence.lock_subtrees(name) locks, until the end of the transaction, the fences of all below that a subtree lease of this name has to do
-- with: its own, made if it was not there, and the open ones of the names above and below. Writers hold those whose token they
-- present (fence.admit), be there a fence of the resource yet or not: who is granted the subtree waits for them (P3).
--
-- Called behind the gate, by which none of them is opened or made meanwhile, and before fence.lock_fence. The sweep may delete the row of an
-- unused name before it is locked here: then it is made again.
create or replace function fence.lock_subtrees(p_name text) returns void
language plpgsql
as $$
begin
    loop
        insert into fence.subtrees (name) values (p_name) on conflict do nothing;
        perform from fence.subtrees s
        where s.name = p_name or s.open and (s.name = any (fence.ancestors(p_name)) or s.name > p_name || '/' and s.name < p_name || '0')
        order by s.name for update;
        exit when exists (select from fence.subtrees s where s.name = p_name);
    end loop;
end
$$;
