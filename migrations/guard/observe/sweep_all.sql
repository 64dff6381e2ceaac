-- fence.sweep_all(max_ms) is the sweep for databases without a gateway: pg_cron or any other client calls it, every ten
-- seconds for example. It may run beside gateways and beside itself: fence.sweep. → for each part: done, how much it has
-- done; more: whether there is more to do, also because it had no time or found something locked for 500 ms.
--
-- It begins with the part that was swept the longest ago, repeats those with more to do, and begins nothing after
-- max_ms. It is one transaction, so what it has locked stays locked until then; others skip that or wait. So it ends the
-- leases of sessions on 512 locks at most, each of which takes room in the lock table.
--
-- Raises LF006 as fence.jump does.
create or replace function fence.sweep_all(max_ms integer default 1000)
returns table (part text, done bigint, more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_end     timestamptz := clock_timestamp() + max_ms * interval '1 ms';
    v_parts   text[] := array(select s.part from fence.sweeps s order by s.swept_at, s.part);
    v_done    bigint[] := array_fill(0, array[cardinality(v_parts)]);
    v_left    text[] := v_parts;
    v_locked  text[] := '{}';
    v_settles integer := 0;
    v_part    text;
    v_swept   record;
    v_session uuid;
    v_lock    text;
    v_ticket  bigint;
    v_sealed  bigint := (select max(s.seal) from fence.audit_seals s);
begin
    while clock_timestamp() < v_end and v_left <> '{}' loop
        foreach v_part in array v_left loop
            exit when clock_timestamp() >= v_end;
            begin
                v_swept := fence.sweep(v_part, '0', null, null, null);
                v_done[array_position(v_parts, v_part)] := v_done[array_position(v_parts, v_part)] + v_swept.done;
                if not v_swept.more then
                    v_left := array_remove(v_left, v_part);
                end if;
                foreach v_session in array coalesce(v_swept.unsettled, '{}') loop
                    v_lock := '';
                    while v_lock is not null and v_settles < 8 and clock_timestamp() < v_end loop
                        v_lock := (select l.last from fence.settle_leases(v_session, v_lock, 64, 20) l);
                        v_settles := v_settles + 1;
                    end loop;
                    v_ticket := 0;
                    while v_lock is null and v_ticket is not null and clock_timestamp() < v_end loop
                        v_ticket := fence.settle_waiters(v_session, v_ticket, 64);
                    end loop;
                end loop;
            exception when lock_not_available or deadlock_detected then
                v_left := array_remove(v_left, v_part);
                v_locked := v_locked || v_part;
            end;
        end loop;
    end loop;
    if v_sealed is distinct from (select max(s.seal) from fence.audit_seals s) then
        perform fence.commit_durably(); -- as fence.seal_audit; the parts after it did not need it
    end if;
    return query select p.part, p.done, p.part = any (v_left || v_locked) from unnest(v_parts, v_done) as p (part, done);
end
$$;
