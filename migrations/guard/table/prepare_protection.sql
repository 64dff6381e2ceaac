-- fence.prepare_protection(table, template, mode) → the statements that make the missing triggers of a protected table.
-- fence.protect runs them as its caller, who must own the table.
--
-- Registers the table, or changes its registration, and makes the functions of its triggers, which do not work yet.
-- Deletes the registrations of tables that were dropped.
--
-- Raises 22023 for an invalid argument, 42501 for a caller who does not own the table, 42809 for a table that cannot be
-- protected, and what fence.template_columns raises.
create or replace function fence.prepare_protection(p_table regclass, p_template text, p_mode text) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_problem  text := fence.table_problem(p_table);
    v_id       integer;
    v_sql      text;
    v_dropped  regclass;
    -- current_user is the owner of this function here.
    v_caller   name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
    if p_mode is null or p_mode not in ('enforce', 'observe') then
        raise exception 'the mode is enforce or observe' using errcode = 'invalid_parameter_value';
    elsif v_problem is not null then
        raise exception '%', v_problem using errcode = 'wrong_object_type';
    elsif not (select pg_has_role(v_caller, c.relowner, 'usage') from pg_class c where c.oid = p_table) then
        raise exception '% is not the owner of %', v_caller, p_table using errcode = 'insufficient_privilege';
    end if;
    perform fence.template_columns(p_table, p_template);

    for v_dropped in
        select p.table_id from fence.protected_tables p where not exists (select from pg_class c where c.oid = p.table_id)
    loop
        begin
            perform fence.forget_protection(v_dropped);
        exception
            when dependent_objects_still_exist then
                null; -- somebody made another trigger with its functions
        end;
    end loop;
    insert into fence.protected_tables as p (table_id, template, mode) values (p_table, p_template, p_mode)
    on conflict (table_id) do update set template = excluded.template, mode = excluded.mode
    returning p.id into v_id;
    -- The owner may make triggers with functions that do not check yet (fence.finish_protection).
    for v_sql in
        select format('create or replace function %s() returns trigger language plpgsql as %L', f.name,
            'begin raise exception ''the table is not protected yet: call fence.protect''; end')
        from (
            select distinct w.function_name as name from fence.wanted_triggers(v_id, p_table) w
            where w.function_name <> 'fence.check_truncate') f
    loop
        execute v_sql;
    end loop;
    -- fence.check_truncate is granted once: two transactions cannot change the rights of one function at a time.
    for v_sql in
        select distinct format('grant execute on function %s() to %s', w.function_name, c.relowner::regrole)
        from fence.wanted_triggers(v_id, p_table) w, pg_class c
        where c.oid = p_table
            and not has_function_privilege(c.relowner, w.function_name || '()', 'execute')
    loop
        execute v_sql;
    end loop;

    return array(
        select regexp_replace(w.definition, '^CREATE', 'CREATE OR REPLACE')
            || format('; ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', w.on_table, w.name)
        from fence.wanted_triggers(v_id, p_table) w
        order by w.name, w.on_table);
end
$$;
