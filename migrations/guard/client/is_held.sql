-- fence.is_held(lock) → whether a lease on the lock runs, or the name is too long for a lock; null for a name that the role
-- may not use. For fence.claim. It is dear, so that the planner tests the conditions of the caller first.
create or replace function fence.is_held(p_lock text) returns boolean
language plpgsql stable security definer cost 10000 set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
begin
    return case when fence.may_use(p_lock) then
        octet_length(p_lock) > 512 or exists (select from fence.live_leases() l where l.lock = p_lock) end;
end
$$;
