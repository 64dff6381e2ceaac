-- fence.protect(table, template, mode, inserts) protects a table: from its commit on, a row can be inserted, updated or deleted
-- only in a transaction that is admitted for the resource of the row (fence.guard), or of both the old and the new row.
--
-- template  names the resource of a row: accounts/{id}, where id is a column; or accounts, one resource for all rows
-- mode      enforce, or observe: what would be rejected is recorded, and nothing is rejected
-- inserts   guarded, or free: anybody may insert rows, for a queue or an outbox; null: as they were, guarded at first
--
-- For owners of the table: it changes the table with the caller's rights, and gives the owner of the schema fence the
-- right to make triggers on it. That owner also needs the right to use the table's schema. Called again, it changes
-- template and mode, and makes missing triggers, such as those for TRUNCATE on partitions that were attached meanwhile.
-- The rows that exist are not changed. Waits for the writers of the table, unless the mode is observe and all triggers
-- are as they should be: then writers have the mode from their next statement on, and for one that they have prepared,
-- from their next transaction on.
--
-- Returns true. Raises what fence.prepare_protection raises, and 42501 for a caller who does not own the table.
create or replace function fence.protect(
    p_table regclass, p_template text, p_mode text default 'enforce', inserts text default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_sql text;
begin
    insert into fence.table_callers (table_id) values (p_table);
    foreach v_sql in array fence.prepare_protection(p_table, p_template, p_mode, inserts) loop
        execute v_sql;
    end loop;
    insert into fence.table_callers (table_id) values (p_table);
    foreach v_sql in array fence.make_triggers(p_table) loop
        execute v_sql;
    end loop;
    return true;
end
$$;

-- fence.prepare_protection(table, template, mode, inserts) → the statements that give the schema's owner the right to make
-- triggers on the table, if it has not got it. fence.protect runs them as its caller, who must own the table.
--
-- Registers the table, or changes its registration, and makes the functions of its triggers. Warns of what passes by
-- them (fence.bypass), and keeps the name of the registration as long as another table has it. Deletes the registrations
-- of tables of the same name that were dropped.
--
-- Raises 22023 for an invalid argument, and in a cluster for a template whose names are at other nodes than the rows
-- (fencegate.template_problem), 42501 for a caller who does not own the table, or if the schema's owner may not
-- use a schema that the triggers need, 55000 if another role may replace the triggers (fence.replaceable_by), 42809 for a
-- table that cannot be protected and is not, and what fence.template_columns raises.
create or replace function fence.prepare_protection(p_table regclass, p_template text, p_mode text, p_inserts text)
returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_problem  text := fence.table_problem(p_table);
    v_grant    text;
    v_revoke   text;
    v_table    fence.protected_tables;
    v_dropped  regclass;
    v_name     text := p_table;
begin
    if p_mode is null or p_mode not in ('enforce', 'observe') then
        raise exception 'the mode is %, it must be enforce or observe', quote_nullable(left(p_mode, 50))
            using errcode = 'invalid_parameter_value';
    elsif p_inserts not in ('guarded', 'free') then
        raise exception 'inserts is %, it must be guarded or free', quote_literal(left(p_inserts, 50))
            using errcode = 'invalid_parameter_value';
    elsif v_problem is not null and not exists (
        select from fence.protected_tables p join pg_class c on c.oid = p.table_id where p.table_id = p_table)
    then
        raise exception '%', v_problem using errcode = 'wrong_object_type';
    end if;
    perform fence.check_table_owner(p_table);
    if exists (select from fence.cluster) then
        v_problem := fencegate.template_problem(p_table, p_template);
        if v_problem is not null then
            raise exception '%', v_problem using errcode = 'invalid_parameter_value';
        end if;
    end if;
    if not exists (select from fence.template_columns(p_table, p_template) c where c.literal is null) then
        raise notice 'one fence for the whole table: the template % has no column',
            quote_literal(left(p_template, 100));
    end if;
    v_grant := fence.missing_usage(p_table, p_template);
    if v_grant is not null then
        raise exception 'fencegate, as the role %, may not use a schema that the protection of % needs',
            current_user, p_table
            using errcode = 'insufficient_privilege', hint = 'Let the owner of the schema run: ' || v_grant;
    end if;
    v_revoke := fence.replaceable_by(p_table);
    if v_revoke is not null then
        raise exception '%', v_revoke using errcode = 'object_not_in_prerequisite_state',
            hint = 'An application needs select, insert, update and delete. GRANT ALL grants trigger, too.';
    end if;

    for v_dropped in
        select p.table_id from fence.protected_tables p
        where p.table_name = v_name and not exists (select from pg_class c where c.oid = p.table_id)
    loop
        begin
            perform fence.delete_protection(v_dropped);
        exception
            when dependent_objects_still_exist then
                null; -- somebody made another trigger with its functions
        end;
    end loop;
    perform fence.move_sequences();
    insert into fence.protected_tables as p (table_id, table_name, template, mode, inserts)
    values (p_table, v_name, p_template, p_mode, coalesce(p_inserts, 'guarded'))
    on conflict (table_id) do update
    set table_name = case when fence.namesake(p) is null then excluded.table_name else p.table_name end,
        template = excluded.template, mode = excluded.mode, inserts = coalesce(p_inserts, p.inserts)
    returning p.* into v_table;
    perform fence.note_action('table_protected', '', jsonb_build_object(
        'table', v_name, 'template', p_template, 'mode', p_mode, 'inserts', v_table.inserts));
    perform fence.make_trigger_functions(v_table);
    v_problem := fence.bypass(v_table);
    if v_problem is not null then
        raise warning '%', v_problem;
    end if;

    return array(
        select distinct format('grant trigger on %s to %I', w.on_table, current_user)
        from fence.wanted_triggers(v_table.id, p_table) w
        where not has_table_privilege(w.on_table, 'trigger'));
end
$$;

-- fence.check_table_owner(table) raises 42501 if the table exists and the caller does not own it. For functions that run
-- with the rights of the schema's owner: there, current_user is that owner. The caller has inserted the table into
-- fence.table_callers immediately before, and this deletes the row: no code of another role comes between the two.
create or replace function fence.check_table_owner(p_table regclass) returns void
language plpgsql
as $$
declare
    v_caller name;
    v_owner  oid := (select c.relowner from pg_class c where c.oid = p_table);
begin
    delete from fence.table_callers c where c.table_id = p_table and c.called_in = pg_current_xact_id()
    returning c.caller into v_caller;
    if v_owner is null then
        return;
    elsif v_caller is null then
        raise exception 'only fence.protect and fence.unprotect call this' using errcode = 'insufficient_privilege';
    elsif not pg_has_role(v_caller, v_owner, 'usage') then
        raise exception '% does not own %', v_caller, p_table using errcode = 'insufficient_privilege';
    end if;
end
$$;

-- fence.replaceable_by(table) → which role may replace the triggers of a table or of one of its partitions, and what to
-- revoke; null if none may. A role with the right TRIGGER, which GRANT ALL includes, may, and so may its members. The
-- owner of the table and that of the schema fence, which makes the triggers, do not count.
create or replace function fence.replaceable_by(p_table regclass) returns text
language sql stable
as $$
    select format('%1$s may replace the triggers: revoke trigger on %2$s from %1$s',
        coalesce(r.rolname, 'public'), t.oid::regclass)
    from pg_class t
    cross join aclexplode(t.relacl) a
    left join pg_roles r on r.oid = a.grantee
    where t.oid in (select p.relid from fence.with_partitions(p_table) as p (relid))
        and a.privilege_type = 'TRIGGER'
        and a.grantee not in (t.relowner, (select n.nspowner from pg_namespace n where n.nspname = 'fence'))
    order by 1
    limit 1
$$;

-- fence.missing_usage(table, template) → the statement that gives the schema's owner, whose rights the triggers have,
-- the use of a schema that they need: that of the table, or of a domain of its template. null if no right is missing.
create or replace function fence.missing_usage(p_table regclass, p_template text) returns text
language sql stable
as $$
    select format('grant usage on schema %I to %I', n.nspname, current_user)
    from pg_namespace n
    where n.oid in (
            select c.relnamespace from pg_class c where c.oid = p_table
            union all
            select t.typnamespace
            from fence.template_columns(p_table, p_template) c
            join pg_attribute a on a.attrelid = p_table and a.attname = c.column_name
            join pg_type t on t.oid = a.atttypid)
        and not has_schema_privilege(n.oid, 'usage')
    order by n.nspname
    limit 1
$$;
