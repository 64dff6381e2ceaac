-- fence.leases_and_waits(owners) → all that others can wait for: the live leases of these owners, with ticket 0, and
-- their waits. The planner inlines it.
create or replace function fence.leases_and_waits(p_owners text[])
returns table (owner_id text, lock text, mode text, scope text, ticket bigint)
language sql stable
as $$
    select l.owner_id, l.lock::text, l.mode, l.scope, 0::bigint from fence.live_leases() l
    where l.owner_id = any (p_owners)
    union all
    select w.owner_id, w.lock::text, w.mode, w.scope, w.ticket from fence.live_waiters() w
    where w.owner_id = any (p_owners)
$$;
