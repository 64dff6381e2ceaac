-- fence.sweep_expiries(rows_max) → done: the number of expired leases that were not ended by fence.sweep_leases or
-- fence.sweep_holds, which count theirs, and that no sweep has counted yet; more. See fence.sweep.
create or replace function fence.sweep_expiries(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
begin
    delete from fence.expiries e
    where e.id = any (array(select o.id from fence.expiries o order by o.id limit p_rows_max));
    get diagnostics done = row_count;
    more := done = p_rows_max;
end
$$;
