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
            when 'holds' then select * into done, more from fence.sweep_holds(p_rows_max);
            when 'leases' then select * into done, more from fence.sweep_leases(p_rows_max);
            when 'sessions' then select * into done, more, unsettled from fence.sweep_sessions(p_rows_max, p_age);
            when 'expiries' then select * into done, more from fence.sweep_expiries(p_rows_max);
            when 'ended leases' then select * into done, more from fence.sweep_ended(p_rows_max, p_age);
            when 'claims' then select * into done, more from fence.sweep_claims(p_rows_max, p_age);
            when 'rejections' then select * into done, more from fence.sweep_rejections(p_rows_max, p_age, p_count_max);
            when 'gateways' then select * into done, more from fence.sweep_gateways(p_rows_max);
            when 'waiting' then select * into done, more from fence.sweep_waiting(p_rows_max, p_age);
            when 'events' then select * into done, more from fence.sweep_events(p_rows_max, p_age, p_count_max);
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
