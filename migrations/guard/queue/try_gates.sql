-- fence.try_gates(locks) → those of the locks whose gates this transaction has now, without a wait; see fence.lock_gate.
-- A lock is left out if a request for a subtree that contains it has one of them, or waits for it. Locks without a slash
-- need none.
--
-- The caller bounds the number of gates: the lock table of a server with default settings holds some thousands, for all.
create or replace function fence.try_gates(p_locks text[]) returns text[]
language plpgsql
as $$
begin
    return array(
        select l from unnest(p_locks) l
        where position('/' in l) = 0 or not exists (
            select from unnest(fence.ancestors(l)) a
            where not pg_try_advisory_xact_lock_shared(1718511205, hashtext(a))));
end
$$;
