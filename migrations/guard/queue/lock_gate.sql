-- fence.lock_gate(lock, scope) takes the gates of a lock: advisory locks that keep requests for a lock and for a
-- subtree that contains it from being decided at the same time; neither would see the other's lease. They also keep
-- both apart from the end of a lease and from a waiter that leaves, which must see a new waiter to wake it. Held until
-- the end of the transaction; shared between requests that only have a name above in common.
--
-- Called before anything else is locked. A name without a slash that is requested alone has nothing above and covers
-- nothing below: it takes no gate. See fence.lock_gates about the order.
create or replace function fence.lock_gate(p_lock text, p_scope text) returns void
language plpgsql
as $$
begin
    if p_scope = 'subtree' or split_part(p_lock, '/', 3) <> '' then
        perform fence.lock_gates(array[p_lock], array[p_scope]);
    elsif position('/' in p_lock) > 0 then
        perform pg_advisory_xact_lock_shared(1718511205, hashtext(split_part(p_lock, '/', 1))); -- the only name above
    end if;
end
$$;
