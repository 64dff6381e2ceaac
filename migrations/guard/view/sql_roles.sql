-- fence.sql_roles: the roles with the rights of an application (fencegate migrate --app-role), but those that may do what
-- gateways do. prefixes are those of the names that they may use; null: all names (fence.names_of).
create or replace view fence.sql_roles as
    select r.rolname as role_name, fence.names_of(r.rolname) as prefixes
    from pg_roles r
    where has_function_privilege(r.oid, 'fence.guard'::regproc, 'execute')
        and not has_function_privilege(r.oid, 'fence.acquire_lease'::regproc, 'execute');
