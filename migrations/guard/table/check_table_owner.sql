-- fence.check_table_owner(table) raises 42501 if the table exists and the caller does not own it. For functions that run
-- with the rights of the schema's owner: there, current_user is that owner. The caller is the role that the session has
-- set, or its user.
create or replace function fence.check_table_owner(p_table regclass) returns void
language plpgsql
as $$
declare
    v_caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
begin
    if exists (select from pg_class c where c.oid = p_table and not pg_has_role(v_caller, c.relowner, 'usage')) then
        raise exception '% does not own %', v_caller, p_table using errcode = 'insufficient_privilege';
    end if;
end
$$;
