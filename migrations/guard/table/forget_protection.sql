-- fence.forget_protection(table) deletes the registration of a protected table and the functions of its triggers, which
-- must not exist any more. Raises 42501 for a caller who does not own the table.
create or replace function fence.forget_protection(p_table regclass) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_function text;
begin
    perform fence.check_table_owner(p_table);
    for v_function in
        with forgotten as (delete from fence.protected_tables p where p.table_id = p_table returning p.id)
        select p.oid::regprocedure
        from forgotten f
        join pg_proc p on p.pronamespace = 'fence'::regnamespace
            and p.proname in (select format('check_%s_%s', f.id, k)
                from unnest(array['insert', 'update', 'delete', 'row']) k)
    loop
        execute 'drop function ' || v_function;
    end loop;
end
$$;
