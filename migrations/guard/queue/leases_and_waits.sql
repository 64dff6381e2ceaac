-- fence.leases_and_waits(principal, owner_id) → all that others can wait for of this owner: its live leases, with
-- ticket 0, and its waits. The planner inlines it.
create or replace function fence.leases_and_waits(p_principal text, p_owner_id text)
returns table (lock text, mode text, scope text, ticket bigint)
language sql stable
as $$
    select l.lock::text, l.mode, l.scope, 0::bigint from fence.live_leases() l
    where l.owner_id = p_owner_id and l.principal = p_principal
    union all
    select w.lock::text, w.mode, w.scope, w.ticket from fence.live_waiters() w
    where w.owner_id = p_owner_id and w.principal = p_principal
$$;
