-- fence.namesake(protected) → the table that has the name with which a table was protected, but is another one, and not
-- protected; null if there is none. A program that moves a table leaves such a one behind: it renames another table,
-- moves it from another schema, or drops the table and makes it again. Writers that know the name write to that one.
--
-- A view over a protected table is none: a write to the view is a write to the table.
create or replace function fence.namesake(p_protected fence.protected_tables) returns regclass
language plpgsql stable -- which keeps the plan: in SQL it would be planned for each table
as $$
begin
    return (
        select c.oid::regclass
        from parse_ident(p_protected.table_name) as n (parts)
        join pg_class c on c.relname = n.parts[2]::name
            and c.relnamespace = (select s.oid from pg_namespace s where s.nspname = n.parts[1]::name)
        where c.relkind in ('r', 'p', 'f', 'v')
            and not exists (select from fence.protected_tables p where p.table_id in (c.oid, pg_partition_root(c.oid)))
            and not exists (
                select from pg_rewrite r
                join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
                join fence.protected_tables p on p.table_id = d.refobjid
                where r.ev_class = c.oid and d.refclassid = 'pg_class'::regclass));
end
$$;
