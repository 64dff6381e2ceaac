-- fence.break_deadlock(gateway_id, ticket, insist) takes the gateway's waiter out of its queue if it is in a cycle, and
-- wakes the waiters that it blocked.
--
-- outcome  deadlock  it is out; cycle is a list of {owner_id, principal, lock}: each owner waits for the lock, and the
--                    next one holds it or is ahead in its queue. The first is the waiter's, and the last waits for it.
--          none      it is in no cycle, or not in the queue any more
--          again     another call is at work on the same cycle, or the lock's fence is locked: call again, a little
--                    later
--          younger   there is a later wait in the cycle. That one is to be refused: its gateway looks for cycles, too.
--                    Only if that has not happened after a while (it had looked before the cycle could be seen), this
--                    one goes, if insist is true.
--
-- Invariant: one waiter is taken out of each cycle. All waits of the cycle are locked, in the order of their tickets
-- and without waiting, and the cycle is looked at again: the second call finds that it is gone. The waits are locked
-- after the fence of this one, as everywhere.
create or replace function fence.break_deadlock(
    p_gateway_id uuid, p_ticket bigint, p_insist boolean, out outcome text, out cycle json)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
set lock_timeout = '100ms'
as $$
declare
    v_waiter  fence.waiters;
    v_locked  bigint[];
    v_tickets bigint[];
begin
    perform set_config('synchronous_commit', 'off', true);
    outcome := 'none';
    select * into v_waiter from fence.waiters w where w.ticket = p_ticket and w.gateway_id = p_gateway_id;
    if not found then
        return;
    end if;
    perform fence.take_tree_lock(v_waiter.lock, v_waiter.scope);
    perform from fence.fences f where f.resource = v_waiter.lock for update;

    v_locked := fence.wait_cycle(p_ticket);
    if v_locked is null then
        return;
    end if;
    if not p_insist and exists (select from unnest(v_locked) t where t > p_ticket) then
        outcome := 'younger';
        return;
    end if;
    perform from fence.waiters w where w.ticket = any (v_locked) order by w.ticket for update nowait;
    v_tickets := fence.wait_cycle(p_ticket);
    if v_tickets is null then
        return;
    end if;
    if not v_tickets <@ v_locked then
        outcome := 'again';
        return;
    end if;
    cycle := (
        select json_agg(
            json_build_object('owner_id', w.owner_id, 'principal', w.principal, 'lock', w.lock) order by t.ordinality)
        from unnest(v_tickets) with ordinality t (ticket, ordinality)
        join fence.waiters w on w.ticket = t.ticket);
    perform fence.leave(p_gateway_id, array[p_ticket]);
    outcome := 'deadlock';
exception
    when lock_not_available then
        outcome := 'again';
        cycle := null;
end
$$;

-- fence.find_deadlocks(tickets, begun) → those of these waits that are in a cycle, see fence.wait_cycle. A gateway calls
-- this for each of its waits, once the wait is committed: of the waits of a cycle the last one sees all others. Nothing
-- is locked, and nobody waits for this.
--
-- In every cycle there is an owner that waits and has a lease or another wait besides. Of waits that have just begun, at
-- the end of their queues, only those of such owners are searched: others wait for an owner that has nothing else only
-- behind it, where they came later, so a search of their own follows. Most new waits cost two look-ups. If many waits
-- count again, all waits of such owners are searched first: they are few, and mostly in no cycle.
create or replace function fence.find_deadlocks(p_tickets bigint[], p_begun boolean) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_busy bigint[]; -- waits of owners that have something else
begin
    if p_begun or cardinality(p_tickets) > 10 then
        v_busy := array(
            select w.ticket from fence.waiters w
            where w.ticket = any (case when p_begun then p_tickets else array(select o.ticket from fence.waiters o) end)
                and ( -- limit 1: looked up for each wait, instead of read once for all
                    (select true from fence.leases l
                        where l.owner_id = w.owner_id and l.principal = w.principal and l.ended_at is null limit 1)
                    or (select true from fence.waiters o
                        where o.owner_id = w.owner_id and o.principal = w.principal and o.ticket <> w.ticket limit 1)));
        if not p_begun and not exists (select from unnest(v_busy) t where fence.wait_cycle(t) is not null) then
            return;
        end if;
    end if;
    return query
    select t from unnest(case when p_begun then v_busy else p_tickets end) t where fence.wait_cycle(t) is not null;
end
$$;

-- fence.wait_cycle(ticket) → the tickets of a cycle that this wait closes, this one first. Each is a wait for the owner
-- of the next, the last for the owner of the first. Null if there is none. The cycle has no shortcut: no wait in it is
-- for an owner beyond the next. A wait for a lease of the same owner is no cycle: another of its threads may hold it.
-- An owner is a principal and an owner_id.
--
-- Two searches take turns, owner by owner: v_ahead finds the owners that the wait is for, the loop those that wait for
-- its owner. If either ends, there is no cycle, however many owners the other would find. The time is proportional to
-- the waits and leases read: a queue is read only as far as the next exclusive wait. That one conflicts with all that
-- those beyond conflict with, so the search continues with its owner. Two kinds of exclusive waits are passed over:
-- those of the first owner, which is no blocker of its own (the search behind it reads from each of them, so it passes over
-- none), and those for one name if the search comes from a wait for, or a lease of, the subtree, which conflicts with more.
--
-- v_behind lists the owners in the order in which the loop finds them. Each waits for an earlier one, so a walk from
-- the wait to the earliest of its blockers, from there to the earliest of that owner's, and so on, ends at the first
-- owner. If a lease or a wait has expired meanwhile, it may end elsewhere: that cycle is gone.
--
-- Nothing is locked. The function is stable, so all is read from one snapshot: a waiter that is granted the lock
-- meanwhile is seen either as waiter or as holder.
create or replace function fence.wait_cycle(p_ticket bigint) returns bigint[]
language plpgsql stable
as $$
declare
    v_wait   fence.waiters;
    v_ahead  cursor for
        with recursive reached as (
            select v_wait.principal collate "C" as principal, v_wait.owner_id, false as closed
            union
            select b.principal, b.owner_id, (b.principal, b.owner_id) = (v_wait.principal, v_wait.owner_id)
            from reached r
            join fence.live_waiters() h on h.owner_id = r.owner_id and h.principal = r.principal
            cross join lateral (
                select coalesce(max(e.ticket), 0) as ticket from fence.live_waiters() e
                where e.lock = h.lock and e.ticket < h.ticket and e.mode = 'exclusive'
                    and (e.scope = 'subtree' or h.scope = 'node')
                    and (e.principal, e.owner_id) <> (v_wait.principal, v_wait.owner_id)) next
            cross join lateral fence.blockers(h.lock, h.mode, h.scope, h.ticket, next.ticket, null) b
            where (b.principal, b.owner_id) <> (r.principal, r.owner_id)
                and (h.ticket = p_ticket or (r.principal, r.owner_id) <> (v_wait.principal, v_wait.owner_id))
        )
        select r.closed from reached r;
    v_closed boolean := false; -- v_ahead found the first owner again
    v_found  record;
    v_behind text[] := '{}';
begin
    select w.* into v_wait from fence.live_waiters() w where w.ticket = p_ticket;
    if not found then
        return null;
    end if;

    -- An owner may wait thousands of times for a lock, and the search behind it begins with all of these waits. The other
    -- one begins with this wait alone, and mostly ends with the holder.
    if exists (
        select from fence.waiters w
        where w.owner_id = v_wait.owner_id and w.principal = v_wait.principal and w.lock = v_wait.lock
            and w.ticket <> p_ticket)
    then
        open v_ahead;
        move forward 2 in v_ahead;
        fetch from v_ahead into v_closed;
        close v_ahead;
        if v_closed is null then
            return null; -- it ended before the third owner, and did not come back to the first
        end if;
        v_closed := false;
    end if;

    for v_found in
        with recursive reached as (
            select v_wait.principal collate "C" as principal, v_wait.owner_id, false as closed
            union
            select b.principal, b.owner_id, b.ticket = p_ticket
            from reached r
            cross join lateral fence.leases_and_waits(r.principal, r.owner_id) h
            cross join lateral (
                select min(e.ticket) as ticket from fence.live_waiters() e
                where e.lock = h.lock and e.ticket > h.ticket and e.mode = 'exclusive'
                    and (e.scope = 'subtree' or h.scope = 'node')
                    and ((e.principal, e.owner_id) <> (v_wait.principal, v_wait.owner_id)
                        or (r.principal, r.owner_id) = (v_wait.principal, v_wait.owner_id))) next
            cross join lateral fence.waiters_behind(h.lock, h.mode, h.scope, h.ticket, next.ticket, null) b
            where (b.principal, b.owner_id) <> (r.principal, r.owner_id)
        )
        select row(r.principal, r.owner_id)::text as owner, r.closed from reached r
    loop
        exit when v_found.closed;
        v_behind := v_behind || v_found.owner;
        continue when v_closed or cardinality(v_behind) = 1; -- often nobody waits for the owner
        if cardinality(v_behind) = 2 then
            open v_ahead;
        end if;
        fetch v_ahead into v_closed;
        exit when not found;
    end loop;
    if cardinality(v_behind) > 1 then
        close v_ahead;
    end if;
    if not v_found.closed then
        return null;
    end if;

    return (
        with recursive walk as (
            select v_wait.principal collate "C" as principal, v_wait.owner_id, null::bigint as ticket,
                1::bigint << 62 as place
            union all
            select b.*
            from walk f
            cross join lateral (
                select b.principal, b.owner_id, w.ticket, k.place
                from fence.live_waiters() w
                cross join lateral fence.blockers(w.lock, w.mode, w.scope, w.ticket, 0, null) b
                join unnest(v_behind) with ordinality k (owner, place) on k.owner = row(b.principal, b.owner_id)::text
                where w.owner_id = f.owner_id and w.principal = f.principal
                    and (w.ticket = p_ticket or f.ticket is not null)
                    and (b.principal, b.owner_id) <> (w.principal, w.owner_id) and k.place < f.place
                order by k.place limit 1) b
        )
        select array_agg(f.ticket order by f.place desc)
        from walk f where f.ticket is not null having min(f.place) = 1);
end
$$;

-- fence.blockers(lock, mode, scope, ticket, from, limit) → what blocks a waiter: relation holds, the live leases that
-- conflict with it, or before, the conflicting waiters with a lower ticket. from and limit are as of
-- fence.waiters_ahead; leases have ticket 0. principal and owner_id are the owner; sort_key orders each of the two.
--
-- These are the edges of the graph in which deadlocks are found. The planner inlines the function.
create or replace function fence.blockers(
    p_lock text, p_mode text, p_scope text, p_ticket bigint, p_from bigint, p_limit integer)
returns table (relation text, principal text, owner_id text, lock text, sort_key bigint)
language sql stable
as $$
    select 'holds', l.principal, l.owner_id, l.lock::text, l.fencing_token::bigint
    from fence.conflicting_leases(p_lock, p_mode, p_scope) l
    where p_from = 0 and l.expires_at > clock_timestamp()
    union all
    select 'before', w.principal, w.owner_id, w.lock::text, w.ticket
    from fence.waiters_ahead(p_lock, p_mode, p_scope, p_ticket, p_from, p_limit) w
$$;

-- fence.leases_and_waits(principal, owner_id) → all that others can wait for of this owner: its live leases, with
-- ticket 0, and its waits. The planner inlines it. The collation is that of the indexes, whatever that of the principal.
create or replace function fence.leases_and_waits(p_principal text, p_owner_id text)
returns table (lock text, mode text, scope text, ticket bigint)
language sql stable
as $$
    select l.lock::text, l.mode, l.scope, 0::bigint from fence.live_leases() l
    where l.owner_id = p_owner_id collate "default" and l.principal = p_principal
    union all
    select w.lock::text, w.mode, w.scope, w.ticket from fence.live_waiters() w
    where w.owner_id = p_owner_id collate "default" and w.principal = p_principal
$$;
