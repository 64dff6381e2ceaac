-- fence.open_table_named(name) → the table with this name, such as public.accounts, that transactions by HTTP may write
-- to, and the role with whose rights they do; none: there is no such table, or it is not protected at the moment.
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
        and fence.protection_problem(p.id, p.table_id, p.template) is null
    limit 1
$$;
