-- fence.prepare_protection(table, template, mode, inserts) → the statements that give the schema's owner the right to make
-- triggers on the table, if it has not got it. fence.protect runs them as its caller, who must own the table.
--
-- Registers the table, or changes its registration, and makes the functions of its triggers. Warns of what passes by
-- them (fence.bypass), and keeps the name of the registration as long as another table has it. Deletes the registrations
-- of tables of the same name that were dropped.
--
-- Raises 22023 for an invalid argument, 42501 for a caller who does not own the table, or if the schema's owner may not
-- use a schema that the triggers need, 55000 if another role may replace the triggers (fence.replaceable_by), 42809 for a
-- table that cannot be protected and is not, and what fence.template_columns raises.
create or replace function fence.prepare_protection(p_table regclass, p_template text, p_mode text, p_inserts text)
returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_problem  text := fence.table_problem(p_table);
    v_grant    text;
    v_revoke   text;
    v_table    fence.protected_tables;
    v_dropped  regclass;
    v_name     text := p_table;
begin
    if p_mode is null or p_mode not in ('enforce', 'observe') then
        raise exception 'the mode is %, it must be enforce or observe', quote_nullable(left(p_mode, 50))
            using errcode = 'invalid_parameter_value';
    elsif p_inserts not in ('guarded', 'free') then
        raise exception 'inserts is %, it must be guarded or free', quote_literal(left(p_inserts, 50))
            using errcode = 'invalid_parameter_value';
    elsif v_problem is not null and not exists (
        select from fence.protected_tables p join pg_class c on c.oid = p.table_id where p.table_id = p_table)
    then
        raise exception '%', v_problem using errcode = 'wrong_object_type';
    end if;
    perform fence.check_table_owner(p_table);
    if not exists (select from fence.template_columns(p_table, p_template) c where c.literal is null) then
        raise notice 'one fence for the whole table: the template % has no column',
            quote_literal(left(p_template, 100));
    end if;
    v_grant := fence.missing_usage(p_table, p_template);
    if v_grant is not null then
        raise exception 'fencegate, as the role %, may not use a schema that the protection of % needs',
            current_user, p_table
            using errcode = 'insufficient_privilege', hint = 'Let the owner of the schema run: ' || v_grant;
    end if;
    v_revoke := fence.replaceable_by(p_table);
    if v_revoke is not null then
        raise exception '%', v_revoke using errcode = 'object_not_in_prerequisite_state',
            hint = 'An application needs select, insert, update and delete. GRANT ALL grants trigger, too.';
    end if;

    for v_dropped in
        select p.table_id from fence.protected_tables p
        where p.table_name = v_name and not exists (select from pg_class c where c.oid = p.table_id)
    loop
        begin
            perform fence.delete_protection(v_dropped);
        exception
            when dependent_objects_still_exist then
                null; -- somebody made another trigger with its functions
        end;
    end loop;
    perform fence.move_sequences();
    insert into fence.protected_tables as p (table_id, table_name, template, mode, inserts)
    values (p_table, v_name, p_template, p_mode, coalesce(p_inserts, 'guarded'))
    on conflict (table_id) do update
    set table_name = case when fence.namesake(p) is null then excluded.table_name else p.table_name end,
        template = excluded.template, mode = excluded.mode, inserts = coalesce(p_inserts, p.inserts)
    returning p.* into v_table;
    perform fence.note_action('table_protected', '', jsonb_build_object(
        'table', v_name, 'template', p_template, 'mode', p_mode, 'inserts', v_table.inserts));
    perform fence.make_trigger_functions(v_table);
    v_problem := fence.bypass(v_table);
    if v_problem is not null then
        raise warning '%', v_problem;
    end if;

    return array(
        select distinct format('grant trigger on %s to %I', w.on_table, current_user)
        from fence.wanted_triggers(v_table.id, p_table) w
        where not has_table_privilege(w.on_table, 'trigger'));
end
$$;
