-- fence.finish_protection(table) gives the functions of a protected table's triggers their bodies. From then on nobody may
-- make another trigger with them.
--
-- The functions run with the rights of fencegate. In a trigger without transition tables, the name of such a table would
-- be that of a view of any user. So the owner may call them in triggers only while they do nothing, and here every
-- trigger that does must be one that fence.prepare_protection wants.
--
-- Raises 55000 for a table that is not registered, or if its triggers are others.
create or replace function fence.finish_protection(p_table regclass) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_protected fence.protected_tables;
    v_functions text[];
    v_sql       text;
begin
    select * into v_protected from fence.protected_tables p where p.table_id = p_table;
    v_functions := array(
        select distinct w.function_name from fence.wanted_triggers(v_protected.id, p_table) w
        where w.function_name <> 'fence.check_truncate');
    if v_functions = '{}' or exists (
        select from pg_trigger t
        where t.tgfoid = any (array(select to_regproc(f)::oid from unnest(v_functions) f)) and t.tgparentid = 0
            and not exists (
                select from fence.wanted_triggers(v_protected.id, p_table) w
                where w.on_table = t.tgrelid and w.name = t.tgname and w.definition = pg_get_triggerdef(t.oid)))
    then
        raise exception 'the triggers of % are not those that fence.protect makes', p_table
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    for v_sql in
        select format('create or replace function %s() returns trigger language plpgsql security definer '
            'set enable_seqscan = off as %L; revoke all on function %1$s() from public, %3$s',
            w.function_name, f.body, c.relowner::regrole)
        from unnest(v_functions) as w (function_name)
        join fence.trigger_functions(p_table, v_protected.template) f
            on w.function_name = format('fence.check_%s_%s', v_protected.id, f.kind)
        join pg_class c on c.oid = p_table
    loop
        execute v_sql;
    end loop;
end
$$;
