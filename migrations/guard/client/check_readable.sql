-- fence.check_readable(table) → true. Raises 42501 unless the session may read the table: by the rights of its role, or of
-- one to which it may SET ROLE.
create or replace function fence.check_readable(p_table regclass) returns boolean
language plpgsql stable
as $$
begin
    if not has_any_column_privilege(session_user, p_table, 'select') and not exists (
        select from pg_roles r
        where pg_has_role(session_user, r.oid, 'member') and has_any_column_privilege(r.oid, p_table, 'select'))
    then
        raise exception 'permission denied for table %', p_table using errcode = 'insufficient_privilege';
    end if;
    return true;
end
$$;
