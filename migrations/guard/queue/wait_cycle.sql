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
