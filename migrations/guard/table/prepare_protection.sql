-- fence.prepare_protection(table, template, mode) → the statements that give the schema's owner the right to make
-- triggers on the table, if it has not got it. fence.protect runs them as its caller, who must own the table.
--
-- Registers the table, or changes its registration, and makes the functions of its triggers. Deletes the registrations
-- of tables that were dropped.
--
-- Raises 42501 for a caller who does not own the table, 22023 for an invalid argument, 42809 for a table that cannot be protected, and what fence.resource_expression
-- raises.
create or replace function fence.prepare_protection(p_table regclass, p_template text, p_mode text) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_problem  text;
    v_id       integer;
    v_sql      text;
    v_dropped  regclass;
begin
    perform fence.check_table_owner(p_table);
    select case
        when p_mode is null or p_mode not in ('enforce', 'observe')
            then 'the mode is enforce or observe'
        when c.oid is null
            then 'there is no such table'
        when c.relispartition
            then format('%s is a partition: protect %s', p_table, pg_partition_root(p_table))
        when c.relkind not in ('r', 'p') or c.relpersistence = 't'
            then format('%s is not a table, or is a temporary one', p_table)
        when n.nspname in ('fence', 'pg_catalog', 'information_schema')
            then format('%s is a table of fencegate or of the system', p_table)
        when exists (select from pg_inherits i where i.inhparent = p_table and c.relkind = 'r' or i.inhrelid = p_table)
            then format('%s inherits, or is inherited from: statements on the other table would not be checked', p_table)
    end
    into v_problem
    from (values (p_table)) as given (oid)
    left join pg_class c on c.oid = given.oid
    left join pg_namespace n on n.oid = c.relnamespace;
    if v_problem is not null then
        raise exception '%', v_problem using errcode = case when p_mode in ('enforce', 'observe')
            then 'wrong_object_type' else 'invalid_parameter_value' end;
    end if;

    for v_dropped in
        select p.table_id from fence.protected_tables p where not exists (select from pg_class c where c.oid = p.table_id)
    loop
        perform fence.forget_protection(v_dropped);
    end loop;
    insert into fence.protected_tables as p (table_id, template, mode) values (p_table, p_template, p_mode)
    on conflict (table_id) do update set template = excluded.template, mode = excluded.mode
    returning p.id into v_id;
    foreach v_sql in array fence.trigger_functions(v_id, p_table, p_template) loop
        execute v_sql;
    end loop;
    -- Nobody else makes a trigger with them: in one without transition tables, they would read a temporary view with the
    -- rights of the schema's owner. Only the row trigger of a partitioned table is made by the table's owner, on each
    -- partition that is attached.
    for v_sql in
        select distinct format('revoke all on function %1$s() from public', w.function_name)
            || case when w.name = 'fencegate_row'
                then format('; grant execute on function %s() to %s', w.function_name, c.relowner::regrole) else '' end
        from fence.wanted_triggers(v_id, p_table) w, pg_class c where c.oid = p_table
    loop
        execute v_sql;
    end loop;

    return array(
        select distinct format('grant trigger on %s to %I', w.on_table, current_user)
        from fence.wanted_triggers(v_id, p_table) w
        where not has_table_privilege(w.on_table, 'trigger'));
end
$$;
