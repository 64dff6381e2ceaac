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

-- fence.find_deadlocks(tickets) → those of these waits that are in a cycle, see fence.wait_cycle. A gateway calls this
-- for each of its waits, once the wait is committed: of the waits of a cycle the last one sees all others. Nothing is
-- locked, and nobody waits for this.
--
-- In every cycle there is an owner that waits and has a lease or another wait besides. If there are many waits, those
-- are looked at first: they are few, or none.
create or replace function fence.find_deadlocks(p_tickets bigint[]) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
    if cardinality(p_tickets) > 10 and not exists (
        with many as materialized (
            select w.ticket from fence.live_waiters() w
            where exists (select from fence.live_leases() l
                    where l.owner_id = w.owner_id and l.principal = w.principal)
                or exists (select from fence.live_waiters() o
                    where o.owner_id = w.owner_id and o.principal = w.principal and o.ticket <> w.ticket)
        )
        select from many m where (select c.tickets from fence.wait_cycle(m.ticket) c) is not null)
    then
        return;
    end if;
    return query
    select t from unnest(p_tickets) t where (select c.tickets from fence.wait_cycle(t) c) is not null;
end
$$;

-- fence.find_new_deadlocks(tickets) is fence.find_deadlocks for waits that have just begun, at the end of their queues.
--
-- Most are of owners that have nothing else, and cost two look-ups: others wait for such an owner only behind it in its
-- queue, where they came later, so a search of their own follows.
create or replace function fence.find_new_deadlocks(p_tickets bigint[]) returns setof bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
    v_tickets bigint[] := array(
        select w.ticket from fence.waiters w
        where w.ticket = any (p_tickets) and ( -- limit 1: looked up for each wait, instead of read once for all
            (select true from fence.leases l
                where l.owner_id = w.owner_id and l.principal = w.principal and l.ended_at is null limit 1)
            or (select true from fence.waiters o
                where o.owner_id = w.owner_id and o.principal = w.principal and o.ticket <> w.ticket limit 1)));
begin
    if v_tickets <> '{}' then
        return query select fence.find_deadlocks(v_tickets);
    end if;
end
$$;

-- fence.wait_cycle(ticket) → the cycle of owners that this wait closes: a list of {owner_id, principal, lock}, of which
-- each waits for the lock, and the next holds it or is ahead in its queue. The first is the wait's owner, for whom the
-- last waits. Also the tickets of these waits. Null if there is none. A wait for a lease of the same owner is no cycle:
-- another of its threads may hold it. An owner is a principal and an owner_id.
--
-- It searches from both ends, breadth first: from the wait to its blockers, and from its owner to the waiters that the
-- owner blocks. The end that has less to read continues. If one end has nothing more, there is no cycle, however much
-- the other would find. Each kind of wait for a lock is visited once, except those of the start, where the owner itself
-- was skipped.
--
-- Nothing is locked. The function is stable, so all is read from one snapshot: a waiter that is granted the lock
-- meanwhile is seen either as waiter or as holder.
create or replace function fence.wait_cycle(p_ticket bigint, out cycle json, out tickets bigint[])
language plpgsql stable
as $$
declare
    v_owner       fence.wait_step; -- without a wait
    v_wait        fence.wait_vertex;
    v_ahead       fence.wait_step[] := '{}'; -- found from the wait: lock and ticket are those of the parent's wait
    v_behind      fence.wait_step[] := '{}'; -- found from the owner: lock and ticket are those of its own wait
    v_ahead_at    fence.wait_vertex[];      -- where each end continues
    v_behind_at   fence.wait_vertex[];
    v_ahead_seen  fence.wait_vertex[] := '{}';
    v_behind_seen fence.wait_vertex[] := '{}';
    v_go_ahead    boolean := false;
    v_limit       integer := 100; -- rows that an end may read in one round
    v_refused     integer := 0;   -- ends that had more
    v_found       record;
    v_vertex      fence.wait_vertex;
    v_meeting     fence.wait_step; -- its owner is where the two searches met
begin
    select w.lock, w.mode, w.scope, w.ticket, 0 into v_wait from fence.live_waiters() w where w.ticket = p_ticket;
    if not found then
        return;
    end if;
    select w.principal, w.owner_id, null, null, null into v_owner from fence.waiters w where w.ticket = p_ticket;
    v_ahead_at := array[v_wait];
    v_behind_at := fence.wait_vertices(array[v_owner], 1, '{}', false);
    v_behind_at := array(select row(p.lock, p.mode, p.scope, p.ticket, 0)::fence.wait_vertex
        from unnest(v_behind_at) p);

    loop
        if v_go_ahead then
            v_found := fence.wait_steps(v_ahead_at, v_ahead, case v_ahead when '{}' then v_owner end, true, v_limit);
        else
            v_found := fence.wait_steps(v_behind_at, v_behind, v_owner, false, v_limit);
        end if;
        if v_found.more then
            v_refused := (v_refused + 1) % 2;
            v_limit := v_limit * case v_refused when 0 then 10 else 1 end;
            v_go_ahead := not v_go_ahead;
            continue;
        end if;
        v_refused := 0;

        if v_go_ahead then
            v_ahead_seen := case when v_ahead <> '{}' then v_ahead_seen || v_ahead_at else '{}' end;
            v_ahead := v_ahead || v_found.steps;
            v_ahead_at := fence.wait_vertices(v_ahead, cardinality(v_ahead) - cardinality(v_found.steps) + 1,
                v_ahead_seen, true);
        else
            v_behind_seen := case when v_behind <> '{}' then v_behind_seen || v_behind_at else '{}' end;
            v_behind := v_behind || v_found.steps;
            v_behind_at := fence.wait_vertices(v_behind, cardinality(v_behind) - cardinality(v_found.steps) + 1,
                v_behind_seen, false);
        end if;
        v_meeting := (
            select f from unnest(v_found.steps) f
            where (f.principal, f.owner_id) = (v_owner.principal, v_owner.owner_id) or (f.principal, f.owner_id) in (
                select s.principal, s.owner_id from unnest(case when v_go_ahead then v_behind else v_ahead end) s)
            order by (f.principal, f.owner_id) <> (v_owner.principal, v_owner.owner_id) limit 1);
        select p.* into v_vertex from unnest(v_behind_at) p where not v_go_ahead and fence.conflicts(v_wait, p) limit 1;
        if v_vertex.step > 0 then -- this blocks the wait; its queue need not be read
            v_meeting := v_behind[v_vertex.step];
            v_meeting.lock := v_wait.lock;
            v_meeting.ticket := v_wait.ticket;
            v_meeting.parent := 0;
            v_ahead := array[v_meeting];
        end if;
        if v_meeting.owner_id is not null then
            select p.cycle, p.tickets into cycle, tickets
            from fence.wait_path(v_ahead, v_behind, v_meeting) p;
            return;
        end if;
        if v_ahead_at = '{}' or v_behind_at = '{}' then
            return;
        end if;
        v_go_ahead := cardinality(v_ahead_at) < cardinality(v_behind_at);
    end loop;
end
$$;

-- fence.wait_path(ahead, behind, meeting) → the cycle as fence.wait_cycle returns it: the steps ahead from the wait to
-- the owner of the step meeting, in which the two searches met, and the steps behind from there back to the wait's owner.
create or replace function fence.wait_path(
    p_ahead fence.wait_step[], p_behind fence.wait_step[], p_meeting fence.wait_step,
    out cycle json, out tickets bigint[])
language plpgsql stable
as $$
declare
    v_index integer;
begin
    tickets := '{}';
    v_index := fence.step_of(p_ahead, p_meeting);
    while v_index > 0 loop
        tickets := p_ahead[v_index].ticket || tickets; -- the wait of the step's parent
        v_index := p_ahead[v_index].parent;
    end loop;
    v_index := fence.step_of(p_behind, p_meeting);
    while v_index > 0 loop
        tickets := tickets || p_behind[v_index].ticket; -- its own wait
        v_index := p_behind[v_index].parent;
    end loop;
    cycle := (
        select json_agg(
            json_build_object('owner_id', w.owner_id, 'principal', w.principal, 'lock', w.lock) order by t.ordinality)
        from unnest(tickets) with ordinality t (ticket, ordinality)
        join fence.waiters w on w.ticket = t.ticket);
end
$$;

-- fence.wait_steps(vertices, known, owner, ahead, limit) → steps to the owners that the vertices wait for (ahead), or
-- that wait for them; without the owner of the step owner (null: none) and those of the known steps. If there are more
-- than limit rows to read, only that is returned: more.
create or replace function fence.wait_steps(
    p_vertices fence.wait_vertex[], p_known fence.wait_step[], p_owner fence.wait_step, p_ahead boolean, p_limit integer,
    out steps fence.wait_step[], out more boolean)
language plpgsql stable
as $$
begin
    if p_ahead then
        steps := array(
            select row(x.principal, x.owner_id, p.lock, p.ticket, p.step)::fence.wait_step
            from unnest(p_vertices) p cross join lateral fence.blockers(p.lock, p.mode, p.scope, p.ticket, null) x
            where (x.principal, x.owner_id) is distinct from (p_owner.principal, p_owner.owner_id)
                and (x.principal, x.owner_id) not in (select k.principal, k.owner_id from unnest(p_known) k)
            limit p_limit + 1);
    else
        steps := array(
            select row(x.principal, x.owner_id, x.lock, x.ticket, p.step)::fence.wait_step
            from unnest(p_vertices) p cross join lateral fence.waiters_behind(p.lock, p.mode, p.scope, p.ticket, null) x
            where (x.principal, x.owner_id) is distinct from (p_owner.principal, p_owner.owner_id)
                and (x.principal, x.owner_id) not in (select k.principal, k.owner_id from unnest(p_known) k)
            limit p_limit + 1);
    end if;
    more := cardinality(steps) > p_limit;
    steps := case when not more then array(
        select row(s.*)::fence.wait_step from (select distinct on (principal, owner_id) * from unnest(steps)
            order by principal, owner_id, ticket) s) end;
end
$$;

-- fence.wait_vertices(steps, first, seen, ahead) → where the search continues from the steps with this index and later:
-- from the waits of the owners (ahead), or from all that others can wait for. One of each kind (lock, mode, scope) is
-- returned and stands for the others: the last in the queue (ahead), or the first. Those that seen stands for are left
-- out.
create or replace function fence.wait_vertices(
    p_steps fence.wait_step[], p_first integer, p_seen fence.wait_vertex[], p_ahead boolean)
returns fence.wait_vertex[]
language plpgsql stable
as $$
declare
    v_sign integer := case when p_ahead then 1 else -1 end;
begin
    return array(
        select row(k.lock, k.mode, k.scope, k.ticket, k.step)::fence.wait_vertex
        from (
            select distinct on (v.lock, v.mode, v.scope) v.*
            from (
                select h.lock, h.mode, h.scope, h.ticket, p_first - 1 + s.ordinality as step, false as seen
                from unnest(p_steps[p_first:]) with ordinality s (principal, owner_id, lock, ticket, parent, ordinality)
                cross join lateral fence.leases_and_waits(s.principal, s.owner_id) h
                where h.ticket > 0 or not p_ahead
                union all
                select n.lock, n.mode, n.scope, n.ticket, n.step, true from unnest(p_seen) n
            ) v
            order by v.lock, v.mode, v.scope, v_sign * v.ticket desc, v.seen desc
        ) k
        where not k.seen);
end
$$;

-- fence.step_of(steps, step) → the index of the first of the steps with the owner of this step; null if there is none.
create or replace function fence.step_of(p_steps fence.wait_step[], p_step fence.wait_step) returns bigint
language sql immutable
as $$
    select min(s.ordinality)
    from unnest(p_steps) with ordinality s (principal, owner_id, lock, ticket, parent, ordinality)
    where (s.principal, s.owner_id) = (p_step.principal, p_step.owner_id)
$$;

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
