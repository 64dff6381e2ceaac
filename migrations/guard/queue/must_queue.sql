-- fence.must_queue(lock, mode, scope, ticket) → whether a waiter with a lower ticket waits for a lease that conflicts
-- with one of this kind: it is not this one's turn (P8). Readers queue behind a waiting writer, so writers don't
-- starve.
--
-- The conditions are those of fence.waiters_ahead, one after the other: each reads no further than the first waiter that
-- it finds, however long the queue is.
create or replace function fence.must_queue(p_lock text, p_mode text, p_scope text, p_ticket bigint) returns boolean
language plpgsql
as $$
begin
    if exists (
            select from fence.live_waiters() w
            where w.lock = p_lock and w.ticket < p_ticket and w.mode = 'exclusive')
        or p_mode = 'exclusive' and exists (
            select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket)
    then
        return true;
    end if;
    if p_scope = 'node' and position('/' in p_lock) = 0 then
        return false;
    end if;

    if position('/' in p_lock) > 0 and exists (select from fence.subtrees) and exists (
        select from fence.live_waiters() w
        where w.lock = any (fence.ancestors(p_lock)) and w.scope = 'subtree' and w.ticket < p_ticket
            and 'exclusive' in (w.mode, p_mode))
    then
        return true;
    end if;

    return p_scope = 'subtree' and exists (
        select from fence.live_waiters() w
        where fence.is_below(w.lock, p_lock) and w.ticket < p_ticket and 'exclusive' in (w.mode, p_mode));
end
$$;
