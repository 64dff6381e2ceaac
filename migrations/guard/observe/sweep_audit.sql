-- fence.sweep_audit(rows_max, retention) → done: the number of entries of fence.audit deleted that are older than the
-- retention; more. See fence.sweep.
--
-- Reads from the oldest entry on, and no more than rows_max.
create or replace function fence.sweep_audit(
    p_rows_max integer, p_retention interval, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_retention;
begin
    delete from fence.audit a
    where a.id in (
        select o.id from (select e.id, e.at from fence.audit e order by e.id limit p_rows_max) o where o.at < v_before);
    get diagnostics done = row_count;
    more := done = p_rows_max;
end
$$;
