-- fence.lock_gate_alone(hash) takes a gate alone, see fence.lock_gates.
--
-- PostgreSQL lets later requests for a gate wait behind this one, also those that share it with its holders. While one
-- of these keeps its transaction open, they must not all wait. So this stands in that queue for 40 ms at most, which is
-- enough for holders that commit, however many come; then it leaves for four times as long, and only tries.
--
-- Raises 55P03 after the lock_timeout, or after 10 s without one: PostgreSQL does not see a deadlock between
-- transactions that take the gates of several requests.
create or replace function fence.lock_gate_alone(p_hash integer) returns void
language plpgsql
as $$
declare
    v_timeout text := current_setting('lock_timeout');
    v_until   timestamptz;
    v_ms      integer := 5;
begin
    if pg_try_advisory_xact_lock(1718511205, p_hash) then
        return;
    end if;
    v_until := clock_timestamp() + coalesce(nullif(v_timeout::interval, interval '0'), interval '10 s');
    loop
        v_ms := least(2 * v_ms, 40);
        begin
            perform set_config('lock_timeout', v_ms::text, true);
            perform pg_advisory_xact_lock(1718511205, p_hash);
            perform set_config('lock_timeout', v_timeout, true);
            return;
        exception
            when lock_not_available then
                null; -- the setting is as it was
        end;
        for try in 1 .. 4 loop
            if clock_timestamp() > v_until then
                raise exception 'another transaction uses names below that of the subtree, or above'
                    using errcode = 'lock_not_available';
            end if;
            perform pg_sleep(v_ms * 0.001);
            if pg_try_advisory_xact_lock(1718511205, p_hash) then
                return;
            end if;
        end loop;
    end loop;
end
$$;
