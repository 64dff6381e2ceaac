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
