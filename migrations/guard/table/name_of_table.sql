-- fence.name_of_table(table) → its name with its schema, neither quoted; null if there is no such table.
create or replace function fence.name_of_table(p_table oid) returns text
language plpgsql stable -- which keeps the plan: in SQL it would be planned in each claim
as $$
begin
    return (
        select format('%s.%s', n.nspname, c.relname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = p_table);
end
$$;
