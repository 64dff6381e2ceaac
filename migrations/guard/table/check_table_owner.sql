-- fence.check_table_owner(table) raises 42501 if the table exists and the caller does not own it. For functions that run
-- with the rights of the schema's owner: there, current_user is that owner. The caller has inserted the table into
-- fence.table_callers immediately before, and this deletes the row: no code of another role comes between the two.
create or replace function fence.check_table_owner(p_table regclass) returns void
language plpgsql
as $$
declare
    v_caller name;
    v_owner  oid := (select c.relowner from pg_class c where c.oid = p_table);
begin
    delete from fence.table_callers c where c.table_id = p_table and c.called_in = pg_current_xact_id()
    returning c.caller into v_caller;
    if v_owner is null then
        return;
    elsif v_caller is null then
        raise exception 'only fence.protect and fence.unprotect call this' using errcode = 'insufficient_privilege';
    elsif not pg_has_role(v_caller, v_owner, 'usage') then
        raise exception '% does not own %', v_caller, p_table using errcode = 'insufficient_privilege';
    end if;
end
$$;
