-- fence.check_tables() looks at up to 100 protected tables that were not looked at for 30 s, and notes their problems
-- in fence.protected_tables. It stops after the table at which 100 ms have passed; the next call continues. So each call
-- costs little, however many tables there are. Then it counts the protected tables by mode, and those with a problem, into
-- fence.inventory; among these the tables that fence.protected shows without a mode.
create or replace function fence.check_tables() returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_begun constant timestamptz := clock_timestamp();
    v_table record;
begin
    for v_table in
        select p.id, p.table_id, p.template from fence.protected_tables p
        where p.checked_at < v_begun - interval '30 seconds'
        order by p.checked_at, p.id limit 100 for update skip locked
    loop
        update fence.protected_tables p
        set problem = fence.protection_problem(v_table.id, v_table.table_id, v_table.template),
            checked_at = clock_timestamp()
        where p.id = v_table.id;
        exit when clock_timestamp() - v_begun > interval '100 milliseconds';
    end loop;
    update fence.inventory c
    set tables_enforce = t.enforce, tables_observe = t.observe, tables_with_problems = t.problems
    from (
        select count(*) filter (where p.mode = 'enforce') as enforce, count(*) filter (where p.mode = 'observe') as observe,
            count(p.problem) + (select count(*) from fence.protected v where v.mode is null) as problems
        from fence.protected_tables p
    ) t;
end
$$;

-- fence.protection_problem(id, table, template) → what is wrong with the protection of a table, for the view
-- fence.protected; null if nothing is, or for a template that the role may not use (fence.may_use). A right that was
-- granted later is a problem, too (fence.replaceable_by).
--
-- A table that another session has locked so that nobody can write to it has no problem: this waits 10 ms at most.
create or replace function fence.protection_problem(p_id integer, p_table regclass, p_template text) returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '10ms'
as $$
declare
    v_problem text := (select fence.bypass(p) from fence.protected_tables p where p.id = p_id);
begin
    if not exists (
        select from fence.protected_tables p
        where p.id = p_id and p.table_id = p_table and p.template = p_template and fence.may_use(p.template))
    then
        return null;
    end if;
    if v_problem is not null then
        return v_problem;
    end if;
    v_problem := 'a right is missing: ' || fence.missing_usage(p_table, p_template);
    if v_problem is not null then
        return v_problem;
    end if;
    select w.problem into v_problem
    from fence.wanted_triggers(p_id, p_table) w where w.problem is not null order by w.name, w.on_table limit 1;
    if v_problem is null then
        select 'the trigger functions are not those of the template any more: call fence.protect again'
        into v_problem
        from fence.protected_tables r
        cross join fence.trigger_functions(r) f
        left join lateral (
            select * from pg_proc p
            where p.pronamespace = 'fence'::regnamespace and p.proname = format('check_%s_%s', p_id, f.kind) limit 1
        ) p on true
        where r.id = p_id and p.prosrc is distinct from f.body
        limit 1;
    end if;
    if v_problem is null then
        select format('%s, the owner of %s, cannot attach partitions: call fence.protect again',
            c.relowner::regrole, p_table)
        into v_problem
        from pg_class c
        where c.oid = p_table and c.relkind = 'p'
            and not has_function_privilege(c.relowner, format('fence.check_%s_row()', p_id), 'execute');
    end if;
    if v_problem is null then
        v_problem := fence.replaceable_by(p_table);
    end if;
    return v_problem;
exception
    when lock_not_available then
        return null;
    -- internal_error: pg_get_triggerdef, if another session ends the protection of the table at this moment
    when invalid_parameter_value or undefined_column or datatype_mismatch or internal_error then
        return sqlerrm;
end
$$;

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

-- fence.bypass(protected) → how writes pass by the triggers of a registered table, and the statements that end it;
-- null: they do not. The table was dropped, another one has its name (fence.namesake), or it belongs to a table that is
-- written in its place. The statements keep the template, the mode and what inserts need.
create or replace function fence.bypass(p_protected fence.protected_tables) returns text
language plpgsql stable -- which keeps the plan: in SQL it would be planned for each table
as $$
begin
    return (
        select case
            when o.other is null and c.oid is null
                then format('%s was dropped: call fence.protect for a new table of that name, or fence.unprotect(%s)',
                    p_protected.table_name, p_protected.table_id::oid)
            else case when o.other is null then fence.table_problem(c.oid)
                    else p_protected.table_name || ' is another table now, which is not protected' end
                || ': ' || concat_ws('; ',
                    case when t.id = c.oid then (
                        select string_agg(format('alter table %s no inherit %s', i.inhrelid::regclass,
                            i.inhparent::regclass), '; ' order by i.inhrelid, i.inhparent)
                        from pg_inherits i where c.oid in (i.inhrelid, i.inhparent)) end,
                    case when t.id = c.oid or fence.table_problem(t.id) is null
                            and not exists (select from fence.protected_tables p where p.table_id = t.id)
                        then format('select fence.protect(%L, %L, %L, %L)', t.id, p_protected.template, p_protected.mode,
                            p_protected.inserts) end,
                    case when t.id is distinct from c.oid
                        then format('select fence.unprotect(%L)', p_protected.table_id) end)
        end
        from fence.namesake(p_protected) as o (other)
        left join pg_class c on c.oid = p_protected.table_id
        cross join lateral (
            select coalesce(pg_partition_root(coalesce(o.other, c.oid)), o.other, c.oid)::regclass as id) t);
end
$$;

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
