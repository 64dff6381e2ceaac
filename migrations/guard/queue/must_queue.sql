-- fence.must_queue(lock, mode, scope, ticket) → whether somebody with a lower ticket waits for a lease that one of this kind could not
-- run beside: it is not this one's turn (P8). Readers stand behind a waiting writer, so writers don't starve. Looks no further than
-- the first, however long the line is: an index holds the writers of each queue, so that a reader does not read past other readers.
create or replace function fence.must_queue(p_lock text, p_mode text, p_scope text, p_ticket bigint) returns boolean
language plpgsql
as $$
begin
    if exists (select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket and w.mode = 'exclusive')
        or p_mode = 'exclusive' and exists (select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket)
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
        where w.lock > p_lock || '/' and w.lock < p_lock || '0' and w.ticket < p_ticket and 'exclusive' in (w.mode, p_mode));
end
$$;
