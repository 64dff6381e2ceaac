-- fence.sweep_audit(rows_max, retention, prunable_max) → done: the number of entries of fence.audit deleted; more. See
-- fence.sweep. It seals what is not sealed yet (fence.seal_audit). Of what is sealed, it deletes entries that are older
-- than the retention, and the prunable ones that are not among the newest prunable_max of all entries: nobody can fill
-- the log by such actions. It deletes no younger entry of a principal or of a role.
--
-- Of the seals that are older than the retention and have no entries any more, it keeps the newest one: a chain whose
-- first seal is younger was cut.
--
-- Reads from the oldest entry on, and no more than rows_max of each kind.
create or replace function fence.sweep_audit(
    p_rows_max integer, p_retention interval, p_prunable_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    c_sealed_max constant integer := 100; -- in one seal, which readers get as a whole
    v_before  timestamptz := clock_timestamp() - p_retention;
    v_through bigint := (select max(a.id) from fence.audit a) - p_prunable_max;
    v_sealed  integer := fence.seal_audit(least(p_rows_max, c_sealed_max));
    v_old     bigint;
begin
    delete from fence.audit a
    where a.id = any (array(
        select o.id from fence.audit o
        where o.at < v_before and o.seal is not null
            and o.id = any (array(select e.id from fence.audit e order by e.id limit p_rows_max))
        for update skip locked));
    get diagnostics v_old = row_count;
    delete from fence.audit a
    where a.id = any (array(
        select e.id from fence.audit e where e.prunable and e.seal is not null and e.id <= v_through
        order by e.id limit p_rows_max for update skip locked));
    get diagnostics done = row_count;
    delete from fence.audit_seals s
    where s.seal < (
        select max(o.seal) from (
            select e.seal, e.at from fence.audit_seals e order by e.seal limit c_sealed_max) o where o.at < v_before)
        and not exists (select from fence.audit a where a.seal <= s.seal);
    more := p_rows_max in (v_old, done) or v_sealed in (p_rows_max, c_sealed_max);
    done := v_old + done;
end
$$;
