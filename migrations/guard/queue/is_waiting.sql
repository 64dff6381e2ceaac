-- fence.is_waiting(waiter) → whether it counts, see fence.live_waiters.
create or replace function fence.is_waiting(p_waiter fence.waiters) returns boolean
language sql stable
as $$
    select exists (select from fence.live_waiters() w where w.ticket = p_waiter.ticket)
$$;
