-- fence.sweep_audit(rows_max, retention, anonymous_max) → done: the number of entries of fence.audit deleted; more. See
-- fence.sweep. It deletes entries that are older than the retention, and those of callers without a credential that are
-- not among the newest anonymous_max of all entries: nobody can fill the log by such actions. It deletes no younger
-- entry of a principal or of a role.
--
-- Reads from the oldest entry on, and no more than rows_max of each kind.
create or replace function fence.sweep_audit(
    p_rows_max integer, p_retention interval, p_anonymous_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before  timestamptz := clock_timestamp() - p_retention;
    v_through bigint := (select max(a.id) from fence.audit a) - p_anonymous_max;
    v_old     bigint;
begin
    delete from fence.audit a
    where a.id = any (array(
        select o.id from fence.audit o
        where o.at < v_before and o.id = any (array(select e.id from fence.audit e order by e.id limit p_rows_max))
        for update skip locked));
    get diagnostics v_old = row_count;
    delete from fence.audit a
    where a.id = any (array(
        select e.id from fence.audit e where e.principal = 'anonymous' and e.id <= v_through
        order by e.id limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    more := p_rows_max in (v_old, done);
    done := v_old + done;
end
$$;
