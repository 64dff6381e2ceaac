-- fence.is_waited_for(owner_id) → whether anybody could be waiting for the owner: it has a lease, or a place in a line.
create or replace function fence.is_waited_for(p_owner_id text) returns boolean
language plpgsql
as $$
begin
    return exists (select from fence.leases l where l.owner_id = p_owner_id and l.ended_at is null)
        or exists (select from fence.waiters w where w.owner_id = p_owner_id);
end
$$;
