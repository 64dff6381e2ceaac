-- fence.watch_state(lock) → since, after which the events of the watched lock are complete, and newest, after which its
-- next event will come; both null if it is not watched. Read the lock after this, in the same transaction: while its
-- fence is locked no grant, release or break comes between the two. The caller rolls the transaction back, so the fence
-- of a name that was never used does not stay.
create or replace function fence.watch_state(p_lock text, out since bigint, out newest bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.lock_fence(p_lock);
    select w.since, greatest(w.since, (select max(e.id) from fence.events e where e.lock = p_lock))
    into since, newest
    from fence.watched w where w.lock = p_lock and w.until > clock_timestamp();
end
$$;
