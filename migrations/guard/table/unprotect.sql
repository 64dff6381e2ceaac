-- fence.unprotect(table) ends the protection of a table: it drops the triggers, with the caller's rights, and the
-- registration. A table that is not protected is left as it is. What protects a partition also as a part of its table,
-- or a partition by itself, stays: each table that is protected has a trigger fencegate_guard. Returns true.
create or replace function fence.unprotect(p_table regclass) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_trigger record;
begin
    for v_trigger in
        select t.tgname, t.tgrelid::regclass as on_table
        from pg_trigger t
        where t.tgrelid in (select p_table::oid union select p.relid from pg_partition_tree(p_table) p)
            and t.tgname ~ '^fencegate_' and t.tgparentid = 0
            and case t.tgname when 'fencegate_truncate' then not exists (
                select from pg_partition_ancestors(t.tgrelid) a join pg_trigger g on g.tgrelid = a.relid
                where g.tgname = 'fencegate_guard' and a.relid <> p_table) else t.tgrelid = p_table end
    loop
        execute format('drop trigger %I on %s', v_trigger.tgname, v_trigger.on_table);
    end loop;
    insert into fence.table_callers (table_id) values (p_table);
    perform fence.forget_protection(p_table);
    return true;
end
$$;

-- fence.forget_protection(table) deletes the registration of a protected table and the functions of its triggers, which
-- must not exist any more. Warns where another table has its name (fence.namesake): that one stays unprotected. Raises
-- 42501 for a caller who does not own the table.
create or replace function fence.forget_protection(p_table regclass) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_table fence.protected_tables;
begin
    perform fence.check_table_owner(p_table);
    select * into v_table from fence.protected_tables p where p.table_id = p_table;
    perform fence.delete_protection(p_table);
    if v_table.id is not null then
        perform fence.note_action('table_unprotected', '', jsonb_build_object('table', coalesce(
            (select c.oid::regclass::text from pg_class c where c.oid = p_table), v_table.table_name)));
    end if;
    if fence.namesake(v_table) <> p_table then
        raise warning '% is not protected', v_table.table_name;
    end if;
end
$$;

-- fence.delete_protection(table) deletes the registration of a protected table and the functions of its triggers.
create or replace function fence.delete_protection(p_table regclass) returns void
language plpgsql
as $$
declare
    v_function text;
begin
    for v_function in
        with deleted as (delete from fence.protected_tables p where p.table_id = p_table returning p.id)
        select p.oid::regprocedure
        from deleted d
        join pg_proc p on p.pronamespace = 'fence'::regnamespace
            and p.proname in (select format('check_%s_%s', d.id, k)
                from unnest(array['insert', 'update', 'delete', 'row']) k)
    loop
        execute 'drop function ' || v_function;
    end loop;
end
$$;
