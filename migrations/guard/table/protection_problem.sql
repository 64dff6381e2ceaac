-- fence.protection_problem(id, table, template) → what is wrong with the protection of a table, for the view
-- fence.protected; null if nothing is. It reads only the catalog, and waits for no lock on the table.
create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_problem text := fence.table_problem(p_table);
begin
    if v_problem is not null then
        return v_problem;
    end if;
    select format('trigger %s on %s %s', w.name, w.on_table, case
            when t.oid is null then 'is missing'
            when t.tgenabled <> e.enabled then case w.fires when 'always' then 'does not always fire'
                else 'does not fire for replicated rows alone' end
            else 'has another definition' end)
    into v_problem
    from fence.wanted_triggers(p_id, p_table) w
    cross join lateral (select case w.fires when 'always' then 'A' else 'R' end as enabled) e
    left join pg_trigger t on t.tgrelid = w.on_table and t.tgname = w.name
    where t.tgenabled is distinct from e.enabled or pg_get_triggerdef(t.oid) <> w.definition
    order by w.name, w.on_table
    limit 1;
    if v_problem is null then
        -- The triggers that PostgreSQL makes on partitions.
        select format('trigger fencegate_row on %s %s', p.relid,
            case when t.oid is null then 'is missing' else 'does not always fire' end)
        into v_problem
        from fence.with_partitions(p_table) as p (relid)
        left join pg_trigger t on t.tgrelid = p.relid and t.tgname = 'fencegate_row'
        where p.relid <> p_table and t.tgenabled is distinct from 'A'
        limit 1;
    end if;
    if v_problem is null then
        select 'the trigger functions are not those of the template any more: call fence.protect again'
        into v_problem
        from fence.trigger_functions(p_table, p_template) f
        left join pg_proc p on p.pronamespace = 'fence'::regnamespace and p.proname = format('check_%s_%s', p_id, f.kind)
        where p.prosrc is distinct from f.body
        limit 1;
    end if;
    return v_problem;
exception
    when invalid_parameter_value or undefined_column or datatype_mismatch then
        return sqlerrm;
end
$$;
