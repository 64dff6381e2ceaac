-- fence.table_problem(table) → why a table cannot be protected; null if it can.
create or replace function fence.table_problem(p_table regclass) returns text
language sql stable
as $$
    select case
        when c.oid is null
            then 'there is no such table'
        when c.relispartition
            then format('%s is a partition of %s, which must be protected instead', p_table,
                pg_partition_root(p_table))
        when c.relkind not in ('r', 'p') or c.relpersistence = 't'
            then format('%s is not a table, or is a temporary one', p_table)
        when n.nspname in ('fence', 'pg_catalog', 'information_schema')
            then format('%s is a table of fencegate or of the system', p_table)
        when exists (select from pg_inherits i where i.inhparent = p_table and c.relkind = 'r' or i.inhrelid = p_table)
            then format('%s inherits or is inherited from, so statements on the other table would not be checked',
                p_table)
    end
    from (values (p_table)) as given (oid)
    left join pg_class c on c.oid = given.oid
    left join pg_namespace n on n.oid = c.relnamespace
$$;
