-- fence.plain_locks(locks) → those of the locks about which many can be decided in one statement: nobody waits for the
-- lock, nobody watches it, and no subtree lease was ever requested for its name or one above it.
--
-- The caller holds the gates (fence.try_gates) and the fences, which keep a waiter and a subtree from coming.
create or replace function fence.plain_locks(p_locks text[]) returns text[]
language plpgsql
as $$
declare
    v_subtrees boolean := exists (select from fence.subtrees);
begin
    return array(
        select l from unnest(p_locks) l
        -- offset 0: each is looked up by its name, whatever the statistics say of a table that was empty a minute ago
        where not exists (select from fence.waiters w where w.lock = l offset 0)
            and not exists (select from fence.watched w where w.lock = l and w.until > clock_timestamp() offset 0)
            and not (v_subtrees and exists (
                select from fence.subtrees s where s.name = any (fence.ancestors(l) || l) offset 0)));
end
$$;
