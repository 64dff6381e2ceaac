-- fence.forget_protection(table) deletes the registration of a protected table and the functions of its triggers, which
-- must not exist any more. Raises 42501 for a caller who does not own the table.
create or replace function fence.forget_protection(p_table regclass) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := (select p.table_name from fence.protected_tables p where p.table_id = p_table);
begin
    perform fence.check_table_owner(p_table);
    perform fence.delete_protection(p_table);
    if v_name is not null then
        perform fence.note_action('table_unprotected', '', jsonb_build_object('table', v_name));
    end if;
end
$$;
