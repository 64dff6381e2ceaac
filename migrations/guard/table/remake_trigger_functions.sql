-- fence.remake_trigger_functions() replaces the functions of the triggers of all protected tables, after a migration has
-- replaced the functions that they are made from. The caller has locked fence.protected_tables against changes.
--
-- A table whose template does not fit any more keeps its functions. fence.protected shows that.
create or replace function fence.remake_trigger_functions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_protected fence.protected_tables;
begin
    for v_protected in
        select p.* from fence.protected_tables p join pg_class c on c.oid = p.table_id order by p.id
    loop
        begin
            perform fence.make_trigger_functions(v_protected);
        exception
            when invalid_parameter_value or undefined_column or datatype_mismatch then
                null;
        end;
    end loop;
end
$$;
