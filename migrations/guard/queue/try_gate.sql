-- fence.try_gate(lock) → whether this transaction has the gates of the lock now, taken without a wait; see fence.lock_gate.
-- It has not if a request for a subtree that contains the lock has one of them, or waits for it. A lock without a slash
-- needs none.
--
-- The caller bounds the number of gates: the lock table of a server with default settings holds some thousands, for all.
create or replace function fence.try_gate(p_lock text) returns boolean
language plpgsql
as $$
begin
    if split_part(p_lock, '/', 3) = '' then -- one name above at most: an expression costs a tenth of a query
        return position('/' in p_lock) = 0
            or pg_try_advisory_xact_lock_shared(1718511205, hashtext(split_part(p_lock, '/', 1)));
    end if;
    return not exists (
        select from unnest(fence.ancestors(p_lock)) a
        where not pg_try_advisory_xact_lock_shared(1718511205, hashtext(a)));
end
$$;
