-- fence.admitted: the resources that the running transaction is admitted to write to (fence.guard). Each trigger of a
-- protected table reads it.
--
-- The proof is the fence itself, which only the functions of this schema change. Rolling back to a savepoint takes the
-- proof back with the row. A restored dump brings the numbers of another server's transactions, but then the row itself
-- is older than this transaction.
create or replace view fence.admitted as
    select f.resource, f.last_token, f.last_sequence
    from fence.fences f
    where f.admitted_in = pg_current_xact_id() and age(f.xmin) <= 0;

-- fence.held: the leases that run, as of fence.live_leases, on names that the role may use. table_name is the table of a
-- row that was claimed (fence.is_claim). It names no function whose body is parsed with the search_path of the reader. No
-- function of the caller sees a lease that is not shown.
create or replace view fence.held with (security_barrier) as
    select l.lock, l.owner_id, l.principal, l.mode, l.scope, l.fencing_token,
        case when substr(l.lease_id::text, 15, 2) = '83' then l.metadata ->> 'table' end as table_name, l.granted_at,
        l.expires_at
    from fence.leases l
    where l.ended_at is null and l.expires_at > clock_timestamp() and fence.may_use(l.lock);

-- fence.protected: the protected tables whose template the role may use, with all names below it (fence.may_use). problem
-- says what keeps rows from being checked, such as a disabled trigger; null: nothing. A table with triggers of a protected
-- one that is not protected is here, too, for roles that may use all names, without template and mode: it was restored
-- without the schema fence, or is a partition that was detached.
--
-- table_name and http_role are as SQL writes them: the number of a table that was dropped. They are text, because some
-- drivers and ORMs can't read other types of names.
--
-- The OFFSET keeps conditions of the caller out, so no function of theirs sees a table that is not shown. The option
-- security_barrier does not: the planner flattens a UNION ALL of columns of the same types, and the barrier with it.
create or replace view fence.protected as
    select p.table_id::text as table_name, p.template, p.mode, p.protected_at,
        fence.protection_problem(p.id, p.table_id, p.template) as problem,
        p.http, p.http_role::text as http_role, p.inserts
    from fence.protected_tables p
    where fence.may_use(p.template)
    union all
    select t.tgrelid::regclass::text, null, null, null,
        format('%s has triggers of a protected table, but is not protected, as after a restore without the schema fence '
            'or a detach: call fence.protect or fence.unprotect', t.tgrelid::regclass),
        false, null, null
    from pg_depend d
    join pg_trigger t on t.oid = d.objid
    join pg_class c on c.oid = t.tgrelid
    where d.classid = 'pg_trigger'::regclass and d.refclassid = 'pg_proc'::regclass
        and d.refobjid = 'fence.check_truncate()'::regprocedure and not c.relispartition
        and not exists (select from fence.protected_tables p where p.table_id = t.tgrelid)
        and fence.may_use(null)
    offset 0;

-- fence.sql_roles: the roles with the rights of an application (fencegate migrate --app-role), but those that may do what
-- gateways do. prefixes are those of the names that they may use; null: all names (fence.names_of).
create or replace view fence.sql_roles as
    select r.rolname as role_name, fence.names_of(r.rolname) as prefixes
    from pg_roles r
    where has_function_privilege(r.oid, 'fence.guard'::regproc, 'execute')
        and not has_function_privilege(r.oid, 'fence.acquire_lease'::regproc, 'execute');
