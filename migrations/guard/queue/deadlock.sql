-- fence.break_deadlock(gateway_id, ticket, insist) takes the gateway's waiter out of its queue if it is in a cycle, and
-- wakes the waiters that it blocked.
--
-- outcome  deadlock  it is out; cycle is as of fence.wait_cycle
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

    v_locked := (select c.tickets from fence.wait_cycle(p_ticket) c);
    if v_locked is null then
        return;
    end if;
    if not p_insist and exists (select from unnest(v_locked) t where t > p_ticket) then
        outcome := 'younger';
        return;
    end if;
    perform from fence.waiters w where w.ticket = any (v_locked) order by w.ticket for update nowait;
    select c.cycle, c.tickets into cycle, v_tickets from fence.wait_cycle(p_ticket) c;
    if v_tickets is null then
        return;
    end if;
    if not v_tickets <@ v_locked then
        outcome := 'again';
        return;
    end if;
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
        if not p_begun and not exists (
            select from unnest(v_busy) t where (select c.tickets from fence.wait_cycle(t) c) is not null)
        then
            return;
        end if;
    end if;
    return query
    select t from unnest(case when p_begun then v_busy else p_tickets end) t
    where (select c.tickets from fence.wait_cycle(t) c) is not null;
end
$$;

-- fence.wait_cycle(ticket) → the cycle of owners that this wait closes: a list of {owner_id, principal, lock}, of which
-- each waits for the lock, and the next holds it or is ahead in its queue. The first is the wait's owner, for whom the
-- last waits. Also the tickets of these waits. Of several cycles it is one of the shortest. Null if there is none. A wait
-- for a lease of the same owner is no cycle: another of its threads may hold it. An owner is a principal and an owner_id.
--
-- The first loop searches from both ends in turn: from the wait to the owners that it waits for (ahead), and from its
-- owner to those that wait for it. Each search begins anew and may find ten times as many owners as the one before. If
-- one end has no more, there is no cycle, however many owners the other would find. The time is proportional to the
-- waits and leases read: a queue is read only as far as the next exclusive wait, which conflicts with all that those
-- beyond conflict with, so the search goes on with that wait's owner. Waits of the first owner are passed over in this,
-- since it is no blocker of its own.
--
-- If there is a cycle, the second loop finds a shortest one, breadth first: an owner's other blockers count, too, and of
-- the waits of one kind for a lock the last has the blockers of all.
--
-- Nothing is locked. The function is stable, so all is read from one snapshot: a waiter that is granted the lock
-- meanwhile is seen either as waiter or as holder.
create or replace function fence.wait_cycle(p_ticket bigint, out cycle json, out tickets bigint[])
language plpgsql stable
as $$
declare
    v_wait   fence.waiters;
    v_ahead  boolean := false;
    v_limit  integer := 10; -- of owners in one search
    v_owners integer;
    v_closed boolean;
    v_known  text[] := '{}';
    v_paths  fence.wait_path[];
begin
    select w.* into v_wait from fence.live_waiters() w where w.ticket = p_ticket;
    if not found then
        return;
    end if;

    loop
        if v_ahead then
            with recursive reached as (
                select v_wait.principal collate "C" as principal, v_wait.owner_id, false as closed
                union
                select b.principal, b.owner_id, (b.principal, b.owner_id) = (v_wait.principal, v_wait.owner_id)
                from reached r
                join fence.live_waiters() h on h.owner_id = r.owner_id and h.principal = r.principal
                left join lateral (
                    select e.ticket from fence.live_waiters() e
                    where e.lock = h.lock and e.ticket < h.ticket and e.mode = 'exclusive'
                        and (e.scope = 'subtree' or h.scope = 'node')
                        and (e.principal, e.owner_id) <> (v_wait.principal, v_wait.owner_id)
                    order by e.ticket desc limit 1) next on true
                cross join lateral fence.blockers(h.lock, h.mode, h.scope, h.ticket, coalesce(next.ticket, 0), null) b
                where not r.closed and (b.principal, b.owner_id) <> (r.principal, r.owner_id)
                    and (h.ticket = p_ticket or (r.principal, r.owner_id) <> (v_wait.principal, v_wait.owner_id))
            )
            select count(*), bool_or(f.closed) into v_owners, v_closed
            from (select r.closed from reached r limit v_limit) f;
        else
            with recursive reached as (
                select v_wait.principal collate "C" as principal, v_wait.owner_id, false as closed
                union
                select b.principal, b.owner_id, b.ticket = p_ticket
                from reached r
                cross join lateral fence.leases_and_waits(r.principal, r.owner_id) h
                left join lateral (
                    select e.ticket from fence.live_waiters() e
                    where e.lock = h.lock and e.ticket > h.ticket and e.mode = 'exclusive'
                        and (e.scope = 'subtree' or h.scope = 'node')
                        and (e.principal, e.owner_id) <> (v_wait.principal, v_wait.owner_id)
                    order by e.ticket limit 1) next on true
                cross join lateral fence.waiters_behind(h.lock, h.mode, h.scope, h.ticket, next.ticket, null) b
                where not r.closed and (b.principal, b.owner_id) <> (r.principal, r.owner_id)
                    and (b.ticket = p_ticket or (b.principal, b.owner_id) <> (v_wait.principal, v_wait.owner_id))
            )
            select count(*), bool_or(f.closed) into v_owners, v_closed
            from (select r.closed from reached r limit v_limit) f;
        end if;
        exit when v_closed;
        if v_owners < v_limit then
            return;
        end if;
        v_limit := v_limit * case when v_ahead then 10 else 1 end;
        v_ahead := not v_ahead;
    end loop;

    v_paths := array[row(v_wait.principal, v_wait.owner_id, '{}')::fence.wait_path];
    while tickets is null and v_paths <> '{}' loop
        v_paths := array(
            select row(x.principal, x.owner_id, x.tickets)::fence.wait_path
            from (
                select distinct on (b.principal, b.owner_id) b.principal, b.owner_id, w.tickets || w.ticket as tickets
                from (
                    select distinct on (w.lock, w.mode, w.scope) w.*, p.tickets
                    from unnest(v_paths) p
                    join fence.live_waiters() w on w.owner_id = p.owner_id and w.principal = p.principal
                    where w.ticket = p_ticket or p.tickets <> '{}'
                    order by w.lock, w.mode, w.scope, w.ticket desc) w
                cross join lateral fence.blockers(w.lock, w.mode, w.scope, w.ticket, 0, null) b
                where (b.principal, b.owner_id) <> (w.principal, w.owner_id)
                    and row(b.principal, b.owner_id)::text not in (select unnest(v_known))
                order by b.principal, b.owner_id, w.ticket) x);
        v_known := v_known || array(select row(p.principal, p.owner_id)::text from unnest(v_paths) p);
        tickets := (
            select p.tickets from unnest(v_paths) p
            where (p.principal, p.owner_id) = (v_wait.principal, v_wait.owner_id));
    end loop;
    cycle := (
        select json_agg(
            json_build_object('owner_id', w.owner_id, 'principal', w.principal, 'lock', w.lock) order by t.ordinality)
        from unnest(tickets) with ordinality t (ticket, ordinality)
        join fence.waiters w on w.ticket = t.ticket);
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
