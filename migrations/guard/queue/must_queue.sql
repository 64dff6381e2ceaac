-- fence.must_queue(lock, mode, scope, ticket) → whether a waiter with a lower ticket waits for a lease that conflicts
-- with one of this kind: it is not this one's turn (P8). Readers queue behind a waiting writer, so writers don't
-- starve.
--
-- Reads no further than the nearest such waiter, however long the queue is.
create or replace function fence.must_queue(p_lock text, p_mode text, p_scope text, p_ticket bigint) returns boolean
language plpgsql
as $$
begin
    return exists (select from fence.waiters_ahead(p_lock, p_mode, p_scope, p_ticket, 1));
end
$$;
