-- fence.close_table(table) ends what fence.open_table began. A table that is not open is left as it is.
create or replace function fence.close_table(p_table regclass) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    update fence.protected_tables p set http = false, http_role = null where p.table_id = p_table
$$;
