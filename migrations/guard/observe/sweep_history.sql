-- fence.sweep_history(rows_max, retention) → done: the number of samples deleted that are older than the retention; more.
-- Also deletes gateways that were silent for as long. See fence.sweep.
create or replace function fence.sweep_history(
    p_rows_max integer, p_retention interval, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_retention;
begin
    delete from fence.gateway_states g
    where g.gateway_id = any (array(
        select o.gateway_id from fence.gateway_states o where o.seen_at < v_before for update skip locked));
    delete from fence.samples s
    where s.ctid = any (array(
        select o.ctid from fence.samples o where o.at < v_before
        order by o.at limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    more := done = p_rows_max;
end
$$;
