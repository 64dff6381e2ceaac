-- fence.write_rows(kind, table, resource, role, row, where, conflict, returning) → how many rows of a table were
-- written, and those rows; see fence.row_statement.
--
-- The statement runs as the role (fence.open_table; null: as the caller), and with the search_path of the session, for
-- the code of the table's triggers. Other settings that change the text of values are fixed. Not security definer: such
-- a function could not change the role. Raises 42501 if the role lacks a right, and what the table raises.
create or replace function fence.write_rows(
    p_kind text, p_table regclass, p_resource text, p_role name, p_row json, p_where json, p_conflict text[],
    p_returning text[],
    out row_count bigint, out returned json)
language plpgsql
set timezone = 'UTC' set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set bytea_output = 'hex'
set extra_float_digits = 1
as $$
declare
    v_own_role text := current_setting('role');
    v_sql      text := fence.row_statement(
        p_kind, p_table, p_resource, p_row, p_where, p_conflict, p_returning);
begin
    perform set_config('role', coalesce(p_role, v_own_role), true);
    execute v_sql into row_count, returned using p_row, p_where;
    perform set_config('role', v_own_role, true);
end
$$;
