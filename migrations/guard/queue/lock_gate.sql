-- fence.lock_gate(lock, scope) keeps requests for a lock and for a subtree that it is in from being decided at the same time: neither
-- would see the other's lease. And it keeps them apart from the end of a lease and from who leaves a line, which must see whoever has just
-- begun to wait for it, to wake him. Held until the end of the transaction, shared by those that only have a name above in common.
--
-- Called before anything else is locked. A name without a slash that is asked for alone has nothing above and covers nothing below: it
-- takes no gate. See fence.lock_gates about the order.
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
