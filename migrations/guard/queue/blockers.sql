-- fence.blockers(lock, mode, scope, ticket, limit) → what blocks a waiter: relation holds, the live leases that
-- conflict with it, or before, the conflicting waiters with a lower ticket, where limit is as of fence.waiters_ahead.
-- principal and owner_id are the owner; sort_key orders each of the two.
--
-- These are the edges of the graph in which deadlocks are found. The planner inlines the function.
create or replace function fence.blockers(p_lock text, p_mode text, p_scope text, p_ticket bigint, p_limit integer)
returns table (relation text, principal text, owner_id text, lock text, sort_key bigint)
language sql stable
as $$
    select 'holds', l.principal, l.owner_id, l.lock::text, l.fencing_token::bigint
    from fence.conflicting_leases(p_lock, p_mode, p_scope) l
    where case
            when l.session_id is null then l.expires_at
            else (select fence.lease_until(l, s) from fence.sessions s where s.session_id = l.session_id)
        end > clock_timestamp()
    union all
    select 'before', w.principal, w.owner_id, w.lock::text, w.ticket
    from fence.waiters_ahead(p_lock, p_mode, p_scope, p_ticket, p_limit) w
$$;
