-- fence.wait_cycle(owner_id, lock, mode, scope) → the cycle that the wait of this owner for this lock would close: a list of
-- {owner_id, lock}, of which each waits for the lock, and the next has it or is before it in the line; the first is this owner, for
-- whom the last waits. null where there is none.
--
-- A breadth-first search from the owner backwards: who waits for it, who waits for those, until one is met that this wait would
-- be for. So its cost is that of those who wait for the owner, be the line that it joins ever so long; and the cycle found is a
-- shortest one. An owner who waits for a lease of its own is no cycle: it may be another of its threads that has it.
create or replace function fence.wait_cycle(p_owner_id text, p_lock text, p_mode text, p_scope text) returns json
language plpgsql
as $$
declare
    v_owners text[] := array[p_owner_id]; -- found so far
    v_locks  text[] := array[p_lock];     -- what each waits for
    v_nexts  integer[] := array[0];       -- and whom: a place in these arrays
    v_ahead  text[];                      -- for whom this wait would be
    v_place  integer := 1;
    v_waiter record;
    v_cycle  json[];
begin
    while v_place <= cardinality(v_owners) loop
        for v_waiter in
            select distinct on (w.owner_id) w.owner_id, w.lock
            from (
                select l.lock, l.mode, l.scope, 0 as ticket from fence.leases l
                where l.owner_id = v_owners[v_place] and l.ended_at is null and fence.runs_until(l) > clock_timestamp()
                union all
                select e.lock, e.mode, e.scope, min(e.ticket) from fence.waiters e
                where e.owner_id = v_owners[v_place] and fence.waits(e)
                group by e.lock, e.mode, e.scope
            ) has
            cross join lateral fence.waiting_against(has.lock, has.mode, has.scope) w
            where w.ticket > has.ticket and w.owner_id <> all (v_owners)
        loop
            v_owners := v_owners || v_waiter.owner_id;
            v_locks := v_locks || v_waiter.lock::text;
            v_nexts := v_nexts || v_place;
            v_ahead := coalesce(v_ahead, array(
                select r.owner_id from fence.running_against(p_lock, p_mode, p_scope) r where fence.runs_until(r) > clock_timestamp()
                union
                select a.owner_id from fence.waiting_against(p_lock, p_mode, p_scope) a));
            if v_waiter.owner_id = any (v_ahead) then
                v_place := cardinality(v_owners);
                v_cycle := array[json_build_object('owner_id', p_owner_id, 'lock', p_lock)];
                while v_place > 1 loop
                    v_cycle := v_cycle || json_build_object('owner_id', v_owners[v_place], 'lock', v_locks[v_place]);
                    v_place := v_nexts[v_place];
                end loop;
                return array_to_json(v_cycle);
            end if;
        end loop;
        v_place := v_place + 1;
    end loop;
    return null;
end
$$;
