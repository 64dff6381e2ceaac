-- fence.enqueue(request, wait_ms, gateway_id) → the ticket of a new waiter at the end of the queue.
--
-- The caller has locked the fence, so the tickets of a lock become visible in their order. Whether the wait closes a
-- cycle is checked after the commit (fence.find_deadlocks): here every concurrent enqueue would have to see it.
create or replace function fence.enqueue(p_request fence.leases, p_wait_ms integer, p_gateway_id uuid) returns bigint
language plpgsql
as $$
declare
    v_now    timestamptz := clock_timestamp();
    v_ticket bigint;
begin
    insert into fence.waiters as w (
        lock, gateway_id, owner_id, mode, scope, ttl_ms, session_id, session_until, request_id, metadata, principal,
        queued_at, deadline_at)
    values (
        p_request.lock, p_gateway_id, p_request.owner_id, p_request.mode, p_request.scope, p_request.ttl_ms,
        p_request.session_id, p_request.expires_at,
        p_request.request_id, p_request.metadata, p_request.principal, v_now, v_now + p_wait_ms * interval '1 millisecond')
    returning w.ticket into v_ticket;
    perform fence.note_change(p_request.lock);
    return v_ticket;
end
$$;

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
    if p_mode = 'exclusive' then
        if exists (select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket) then
            return true;
        end if;
    elsif exists (
        select from fence.live_waiters() w where w.lock = p_lock and w.ticket < p_ticket and w.mode = 'exclusive')
    then
        return true;
    end if;
    if fence.has_subtrees(p_lock) and exists (
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

-- fence.waiters_ahead(lock, mode, scope, ticket, from, limit) → the live waiters from one ticket to below the other whose
-- request conflicts with a lease of this kind (fence.conflicting_leases); the nearest ones of each branch, at most limit;
-- null: all.
--
-- A reader and a writer have branches of their own for the name: an index holds the writers of each queue, so a reader
-- does not read past other readers. The planner inlines the function.
create or replace function fence.waiters_ahead(
    p_lock text, p_mode text, p_scope text, p_ticket bigint, p_from bigint, p_limit integer)
returns setof fence.waiters
language sql stable
as $$
    (select w.* from fence.live_waiters() w
    where p_mode = 'shared' and w.lock = p_lock and w.ticket >= p_from and w.ticket < p_ticket and w.mode = 'exclusive'
    order by w.ticket desc limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where p_mode = 'exclusive' and w.lock = p_lock and w.ticket >= p_from and w.ticket < p_ticket
    order by w.ticket desc limit p_limit)
    union all
    (select n.* from unnest(fence.ancestors(p_lock)) a cross join lateral (
        select w.* from fence.live_waiters() w
        where w.lock = a and w.ticket >= p_from and w.ticket < p_ticket
            and 'exclusive' in (w.mode, p_mode) and w.scope = 'subtree'
        order by w.ticket desc limit p_limit) n
    where position('/' in p_lock) > 0)
    union all
    (select w.* from fence.live_waiters() w
    where p_scope = 'subtree' and fence.is_below(w.lock, p_lock) and w.ticket >= p_from and w.ticket < p_ticket
        and 'exclusive' in (w.mode, p_mode)
    order by w.ticket desc limit p_limit)
$$;

-- fence.waiters_behind(lock, mode, scope, ticket, upto, limit) → the live waiters above one ticket and up to the other,
-- null: all, whose request conflicts with a lease of this kind (ticket 0) or with a waiter of this kind; the first ones
-- of each branch, at most limit; null: all. These are the edges of fence.blockers, from the other end; the branches are
-- those of fence.waiters_ahead.
--
-- The planner inlines it.
create or replace function fence.waiters_behind(
    p_lock text, p_mode text, p_scope text, p_ticket bigint, p_upto bigint, p_limit integer)
returns setof fence.waiters
language sql stable
as $$
    (select w.* from fence.live_waiters() w
    where p_mode = 'shared' and w.lock = p_lock and w.ticket > p_ticket
        and w.ticket <= coalesce(p_upto, 1::bigint << 62) and w.mode = 'exclusive'
    order by w.ticket limit p_limit)
    union all
    (select w.* from fence.live_waiters() w
    where p_mode = 'exclusive' and w.lock = p_lock and w.ticket > p_ticket
        and w.ticket <= coalesce(p_upto, 1::bigint << 62)
    order by w.ticket limit p_limit)
    union all
    (select n.* from unnest(fence.ancestors(p_lock)) a cross join lateral (
        select w.* from fence.live_waiters() w
        where w.lock = a and w.ticket > p_ticket and w.ticket <= coalesce(p_upto, 1::bigint << 62)
            and 'exclusive' in (w.mode, p_mode) and w.scope = 'subtree'
        order by w.ticket limit p_limit) n
    where position('/' in p_lock) > 0)
    union all
    (select w.* from fence.live_waiters() w
    where p_scope = 'subtree' and fence.is_below(w.lock, p_lock) and w.ticket > p_ticket
        and w.ticket <= coalesce(p_upto, 1::bigint << 62)
        and 'exclusive' in (w.mode, p_mode)
    order by w.ticket limit p_limit)
$$;

-- fence.live_waiters(gateway_id) → the waiters that count: the gateway is alive, so is the session, and the deadline has
-- not passed. Other waiters block nobody (P8). A gateway that asks for its own names itself: it is alive.
--
-- The only code that says which waiters count. The planner inlines it; the caller restricts it to locks, owners or
-- tickets. It is no join: the gateways are read once, so skipping the waiters of a dead one costs little, and the
-- planner can choose only among the indexes of waiters.
create or replace function fence.live_waiters(p_gateway_id uuid default null) returns setof fence.waiters
language sql stable
as $$
    select w.* from fence.waiters w
    where w.deadline_at > clock_timestamp()
        and (w.gateway_id = p_gateway_id or w.gateway_id = any (array(select g.gateway_id from fence.gateways g
            where g.alive_until > clock_timestamp())))
        and (w.session_until is null or w.session_until > clock_timestamp())
$$;

-- fence.waiter_request(waiter) → what the waiter requests, see fence.lease_request.
create or replace function fence.waiter_request(p_waiter fence.waiters) returns fence.leases
language plpgsql stable
as $$
declare
    v_request fence.leases := fence.lease_request(p_waiter.lock, p_waiter.owner_id, p_waiter.mode, p_waiter.scope,
        p_waiter.ttl_ms, p_waiter.session_id, p_waiter.request_id, p_waiter.metadata, p_waiter.principal);
begin
    v_request.expires_at := p_waiter.session_until;
    return v_request;
end
$$;

-- fence.is_waiting(waiter) → whether it counts, see fence.live_waiters.
create or replace function fence.is_waiting(p_waiter fence.waiters) returns boolean
language sql stable
as $$
    select exists (select from fence.live_waiters() w where w.ticket = p_waiter.ticket)
$$;
