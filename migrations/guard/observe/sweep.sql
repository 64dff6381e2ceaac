-- fence.sweep(part, pause, rows_max, age, count_max) does a part of the sweep, unless another caller is doing it, or
-- the last time is less than the pause ago. A caller that fails or dies leaves the part due. → done: how much it has
-- done; more: whether there is more to do; unsettled: as of fence.sweep_sessions. age and count_max say what is old;
-- null: as fence.sweeps says. rows_max null: 1000. The audit log is kept as fence.sweeps says, or longer: only the owner
-- of the schema, who may change that table, can have it deleted sooner.
--
-- Each part is a function, fence.sweep_…, that is called by this one only. It changes at most rows_max rows, skips
-- locked rows, and waits at most 500 ms for anything else (55P03). Nothing waits for the sweep, and it repeats work that
-- a crash loses, so its commits do not wait for the disk, but those of fence.seal_audit. An unknown part raises 22023.
create or replace function fence.sweep(
    p_part text, p_pause interval, p_rows_max integer, p_age interval, p_count_max bigint,
    out done bigint, out more boolean, out unsettled uuid[])
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off set lock_timeout = '500ms'
as $$
declare
    v_part fence.sweeps;
begin
    select * into v_part from fence.sweeps s where s.part = p_part and s.swept_at <= clock_timestamp() - p_pause
        for update skip locked;
    if found then
        p_rows_max := coalesce(p_rows_max, 1000);
        if p_part = 'audit' then
            p_age := greatest(p_age, v_part.age);
            p_count_max := greatest(p_count_max, v_part.count_max);
        end if;
        p_age := coalesce(p_age, v_part.age);
        p_count_max := coalesce(p_count_max, v_part.count_max);
        perform set_config('synchronous_commit', 'off', true);
        update fence.sweeps s set swept_at = clock_timestamp() where s.part = p_part;
        perform fence.note_jump();
        case p_part
            when 'leases' then select * into done, more from fence.sweep_leases(p_rows_max);
            when 'sessions' then select * into done, more, unsettled from fence.sweep_sessions(p_rows_max, p_age);
            when 'expiries' then select * into done, more from fence.sweep_expiries(p_rows_max);
            when 'ended leases' then select * into done, more from fence.sweep_ended(p_rows_max, p_age);
            when 'claims' then select * into done, more from fence.sweep_claims(p_rows_max, p_age);
            when 'rejections' then select * into done, more from fence.sweep_rejections(p_rows_max, p_age, p_count_max);
            when 'gateways' then select * into done, more from fence.sweep_gateways(p_rows_max);
            when 'waiting' then select * into done, more from fence.sweep_waiting(p_rows_max, p_age);
            when 'reported' then select * into done, more from fence.sweep_reported(p_rows_max);
            when 'audit' then select * into done, more from fence.sweep_audit(p_rows_max, p_age, p_count_max);
            when 'unused' then select * into done, more from fence.sweep_unused(p_rows_max);
        end case;
    elsif not exists (select from fence.sweeps s where s.part = p_part) then
        raise exception 'the sweep has no part %', p_part using errcode = 'invalid_parameter_value';
    end if;
    done := coalesce(done, 0);
    more := coalesce(more, false);
end
$$;

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
