-- fence.protection_problem(id, table, template) → what is wrong with the protection of a table, for the view
-- fence.protected; null if nothing is. It reads only the catalog, and waits for no lock on the table.
create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_problem text;
begin
    if not exists (select from pg_class c where c.oid = p_table) then
        return 'the table was dropped';
    end if;
    select format('trigger %s on %s %s', w.name, w.on_table, case
            when t.oid is null then 'is missing'
            when f.oid is null then 'has another function'
            when t.tgenabled <> 'A' then 'does not always fire'
            else 'has another definition' end)
    into v_problem
    from (
        select * from fence.wanted_triggers(p_id, p_table)
        union all
        -- The triggers that PostgreSQL makes on partitions.
        select p.relid, 'fencegate_row', format('fence.check_%s_row', p_id), '', 29
        from fence.with_partitions(p_table) as p (relid) where p.relid <> p_table
    ) as w (on_table, name, function_name, events, type)
    left join pg_trigger t on t.tgrelid = w.on_table and t.tgname = w.name
    left join pg_proc f on f.oid = t.tgfoid and f.pronamespace = 'fence'::regnamespace
        and 'fence.' || f.proname = w.function_name
    where t.oid is null or f.oid is null or t.tgenabled <> 'A' or t.tgtype <> w.type or t.tgattr::text <> ''
        or (t.tgqual is null) = (w.name = 'fencegate_replica')
    order by w.name, w.on_table
    limit 1;
    if v_problem is null then
        perform fence.resource_expression(p_table, p_template, 'r');
    end if;
    return v_problem;
exception
    when invalid_parameter_value or undefined_column or datatype_mismatch then
        return sqlerrm;
end
$$;
