-- fence.unprotect(table) ends the protection of a table: it drops the triggers, with the caller's rights, and the
-- registration. A table that is not protected is left as it is. Returns true.
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
            and t.tgname in ('fencegate_guard', 'fencegate_insert', 'fencegate_update', 'fencegate_delete',
                'fencegate_replica', 'fencegate_row', 'fencegate_truncate')
            and t.tgparentid = 0
    loop
        execute format('drop trigger %I on %s', v_trigger.tgname, v_trigger.on_table);
    end loop;
    insert into fence.table_callers (table_id) values (p_table);
    perform fence.forget_protection(p_table);
    return true;
end
$$;
