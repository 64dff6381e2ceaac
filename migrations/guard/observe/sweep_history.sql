-- fence.sweep_history(pause, retention, rows_max) → done: the number of samples deleted that are older than the
-- retention; more. Also deletes gateways that were silent for as long. See fence.sweep_turn.
create or replace function fence.sweep_history(
    p_pause interval, p_retention interval, p_rows_max integer, out done bigint, out more boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set jit = off
set lock_timeout = '500ms'
as $$
declare
    v_before timestamptz := clock_timestamp() - p_retention;
begin
    done := 0;
    more := false;
    if not fence.sweep_turn('history', p_pause) then
        return;
    end if;
    delete from fence.gateway_states g where g.seen_at < v_before;
    delete from fence.samples s
    where s.ctid = any (array(
        select o.ctid from fence.samples o where o.at < v_before
        order by o.at limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    more := done = p_rows_max;
end
$$;
