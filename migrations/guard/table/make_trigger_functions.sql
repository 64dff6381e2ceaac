-- fence.make_trigger_functions(protected) makes or replaces the functions of the triggers of a registered table. Raises
-- what fence.template_columns raises.
create or replace function fence.make_trigger_functions(p_protected fence.protected_tables) returns void
language plpgsql
as $$
declare
    v_sql text;
begin
    for v_sql in
        select format('create or replace function fence.check_%s_%s() returns trigger language plpgsql security definer '
            'set enable_seqscan = off as %L', p_protected.id, f.kind, f.body)
        from fence.trigger_functions(p_protected) f
    loop
        execute v_sql;
    end loop;
    -- Nobody else makes a trigger with them: in one without transition tables, they would read a temporary view with the
    -- rights of the schema's owner. Only the row trigger of a partitioned table is made by the table's owner, on each
    -- partition that is attached.
    for v_sql in
        select distinct format('revoke all on function %1$s() from public', w.function_name)
            || case when w.name = 'fencegate_row'
                then format('; grant execute on function %s() to %s', w.function_name, c.relowner::regrole) else '' end
        from fence.wanted_triggers(p_protected.id, p_protected.table_id) w, pg_class c
        where c.oid = p_protected.table_id and w.function_name not in ('fence.check_truncate', 'fence.guard_statement')
    loop
        execute v_sql;
    end loop;
end
$$;
