-- fence.delete_protection(table) deletes the registration of a protected table and the functions of its triggers.
create or replace function fence.delete_protection(p_table regclass) returns void
language plpgsql
as $$
declare
    v_function text;
begin
    for v_function in
        with deleted as (delete from fence.protected_tables p where p.table_id = p_table returning p.id)
        select p.oid::regprocedure
        from deleted d
        join pg_proc p on p.pronamespace = 'fence'::regnamespace
            and p.proname in (select format('check_%s_%s', d.id, k)
                from unnest(array['insert', 'update', 'delete', 'row']) k)
    loop
        execute 'drop function ' || v_function;
    end loop;
end
$$;
