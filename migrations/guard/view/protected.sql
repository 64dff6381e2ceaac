-- fence.protected: the protected tables whose template the role may use, with all names below it (fence.may_use). problem
-- says what keeps rows from being checked, such as a disabled trigger; null: nothing. A table with triggers of a protected
-- one that is not protected is here, too, for roles that may use all names, without template and mode: it was restored
-- without the schema fence, or is a partition that was detached.
--
-- A security barrier: no function of the caller sees a table that is not shown.
create or replace view fence.protected with (security_barrier) as
    select p.table_id as table_name, p.template, p.mode, p.protected_at,
        fence.protection_problem(p.id, p.table_id, p.template) as problem,
        p.http, p.http_role, p.inserts
    from fence.protected_tables p
    where fence.may_use(p.template)
    union all
    select t.tgrelid, null, null, null,
        format('%s has triggers of a protected table, but is not protected, as after a restore without the schema fence '
            'or a detach: call fence.protect or fence.unprotect', t.tgrelid::regclass),
        false, null, null
    from pg_depend d
    join pg_trigger t on t.oid = d.objid
    join pg_class c on c.oid = t.tgrelid
    where d.classid = 'pg_trigger'::regclass and d.refclassid = 'pg_proc'::regclass
        and d.refobjid = 'fence.check_truncate()'::regprocedure and not c.relispartition
        and not exists (select from fence.protected_tables p where p.table_id = t.tgrelid)
        and fence.may_use(null);
