-- fence.open_table(table, role) lets transactions by HTTP write to a protected table.
--
-- For administrators of fencegate. role is the role with whose rights they write: its privileges, its row-level
-- security. The gateway's own role must be a member of it. null: the rights of the gateway, which owns the fences. Code
-- of the table, such as triggers and defaults, could take back the rights of the gateway: open only tables whose owner
-- you trust.
--
-- Called again, it changes the role. While a table is in the mode "observe", or lacks a trigger, nobody writes to it by
-- HTTP. Returns true. Raises 22023 for a table that is not protected.
create or replace function fence.open_table(p_table regclass, p_role regrole default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update fence.protected_tables p set http = true, http_role = p_role where p.table_id = p_table;
    if not found then
        raise exception '% is not protected', p_table
            using errcode = 'invalid_parameter_value', hint = 'Call fence.protect first.';
    end if;
    perform fence.note_action('table_opened', '', jsonb_build_object('table', p_table::text, 'role', p_role::text));
    return true;
end
$$;

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
