-- fence.sweep_turn(part, pause) → whether the caller does this part of the sweep now: no other caller is doing it, and
-- the last time is at least the pause ago. The part is the caller's until the end of the transaction. A caller that
-- fails or dies leaves it due.
--
-- The parts of the sweep (fence.sweep_…) have this in common: each takes pause and rows_max, changes at most rows_max
-- rows, skips locked rows, waits at most 500 ms for anything else (55P03), and returns how much it has done, and
-- whether there is more. Nothing waits for the sweep, and it repeats work that a crash loses, so its commits do not
-- wait for the disk.
create or replace function fence.sweep_turn(p_part text, p_pause interval) returns boolean
language plpgsql
as $$
begin
    perform from fence.sweeps s where s.part = p_part and s.swept_at <= clock_timestamp() - p_pause
        for update skip locked;
    if not found then
        return false;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    update fence.sweeps s set swept_at = clock_timestamp() where s.part = p_part;
    return true;
end
$$;
