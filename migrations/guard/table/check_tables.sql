-- fence.check_tables() looks at up to 100 protected tables that were not looked at for 30 s, and notes their problems
-- in fence.protected_tables. So each look costs little, however many tables there are.
create or replace function fence.check_tables() returns void
language sql
as $$
    update fence.protected_tables p
    set problem = fence.protection_problem(p.id, p.table_id, p.template), checked_at = clock_timestamp()
    where p.id = any (array(
        select o.id from fence.protected_tables o
        where o.checked_at < clock_timestamp() - interval '30 seconds'
        order by o.checked_at, o.id limit 100 for update skip locked))
$$;
