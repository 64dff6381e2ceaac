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
    perform fence.lock_gate(v_waiter.lock, v_waiter.scope);
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
