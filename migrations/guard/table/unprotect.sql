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
