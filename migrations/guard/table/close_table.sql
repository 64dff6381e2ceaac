-- fence.close_table(table) ends what fence.open_table began. A table that is not open is left as it is.
-- Returns true.
create or replace function fence.close_table(p_table regclass) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update fence.protected_tables p set http = false, http_role = null where p.table_id = p_table and p.http;
    if found then
        perform fence.note_action('table_closed', '', jsonb_build_object('table', p_table::text));
    end if;
    return true;
end
$$;
