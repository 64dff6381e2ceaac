-- fence.check_tables() looks at up to 100 protected tables that were not looked at for 30 s, and notes their problems
-- in fence.protected_tables. It stops after the table at which 100 ms have passed; the next call continues. So each call
-- costs little, however many tables there are. Then it counts the protected tables by mode, and those with a problem, into
-- fence.inventory; among these the tables that fence.protected shows without a mode.
create or replace function fence.check_tables() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_begun constant timestamptz := clock_timestamp();
    v_table record;
begin
    for v_table in
        select p.id, p.table_id, p.template from fence.protected_tables p
        where p.checked_at < v_begun - interval '30 seconds'
        order by p.checked_at, p.id limit 100 for update skip locked
    loop
        update fence.protected_tables p
        set problem = fence.protection_problem(v_table.id, v_table.table_id, v_table.template),
            checked_at = clock_timestamp()
        where p.id = v_table.id;
        exit when clock_timestamp() - v_begun > interval '100 milliseconds';
    end loop;
    update fence.inventory c
    set tables_enforce = t.enforce, tables_observe = t.observe, tables_with_problems = t.problems
    from (
        select count(*) filter (where p.mode = 'enforce') as enforce, count(*) filter (where p.mode = 'observe') as observe,
            count(p.problem) + (select count(*) from fence.protected v where v.mode is null) as problems
        from fence.protected_tables p
    ) t;
end
$$;
