-- fence.open_table_named(name) → the table with this name, such as public.accounts, that transactions by HTTP may write
-- to, and the role with whose rights they do; none: there is no such table, it is only observed, or one of its triggers
-- does not fire. The table's owner can fool this; fence.protected finds more, and takes longer.
create or replace function fence.open_table_named(p_name text) returns table (table_id regclass, role name)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select p.table_id, r.rolname
    from fence.protected_tables p
    join pg_class c on c.oid = p.table_id
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_roles r on r.oid = p.http_role
    where p.http and p.mode = 'enforce' and n.nspname || '.' || c.relname = p_name
        and (p.http_role is null or r.oid is not null)
        and case c.relkind when 'p' then 1 else 3 end = (
            select count(*) from pg_trigger t
            where t.tgrelid = p.table_id and t.tgenabled = 'A'
                and t.tgname in ('fencegate_insert', 'fencegate_update', 'fencegate_delete', 'fencegate_row'))
    limit 1
$$;
