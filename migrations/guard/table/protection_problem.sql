-- fence.protection_problem(id, table, template) → what is wrong with the protection of a table, for the view
-- fence.protected; null if nothing is.
create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_problem text;
begin
    if not exists (select from pg_class c where c.oid = p_table) then
        return 'the table was dropped';
    end if;
    select format('trigger %s on %s %s', w.name, w.on_table, case
            when t.oid is null then 'is missing'
            when t.tgfoid <> coalesce(to_regproc(w.function_name)::oid, 0) then 'has another function'
            else 'does not always fire' end)
    into v_problem
    from fence.wanted_triggers(p_id, p_table) w
    left join pg_trigger t on t.tgrelid = w.on_table and t.tgname = w.name
    where t.oid is null or t.tgenabled <> 'A' or t.tgfoid <> coalesce(to_regproc(w.function_name)::oid, 0)
    order by w.name, w.on_table
    limit 1;
    if v_problem is null then
        -- The triggers that PostgreSQL makes on partitions.
        select format('trigger fencegate_row on %s %s', p.relid,
            case when t.oid is null then 'is missing' else 'does not always fire' end)
        into v_problem
        from pg_partition_tree(p_table) p
        left join pg_trigger t on t.tgrelid = p.relid and t.tgname = 'fencegate_row'
        where t.tgenabled is distinct from 'A'
        limit 1;
    end if;
    if v_problem is null then
        perform fence.resource_expression(p_table, p_template, 'r');
    end if;
    return v_problem;
exception
    when invalid_parameter_value or undefined_column or datatype_mismatch then
        return sqlerrm;
end
$$;
