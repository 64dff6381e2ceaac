-- fence.make_trigger_functions(protected) makes or replaces the functions of the triggers of a registered table. Raises
-- what fence.template_columns raises.
create or replace function fence.make_trigger_functions(p_protected fence.protected_tables) returns void
language plpgsql
as $$
declare
    v_sql text;
begin
    for v_sql in
        select format('create or replace function fence.check_%s_%s() returns trigger language plpgsql security definer '
            'set enable_seqscan = off as %L', p_protected.id, f.kind, f.body)
        from fence.trigger_functions(p_protected) f
    loop
        execute v_sql;
    end loop;
    -- Nobody else makes a trigger with them: in one without transition tables, they would read a temporary view with the
    -- rights of the schema's owner. Only the row trigger of a partitioned table is made by the table's owner, on each
    -- partition that is attached.
    for v_sql in
        select distinct format('revoke all on function %1$s() from public', w.function_name)
            || case when w.name = 'fencegate_row'
                then format('; grant execute on function %s() to %s', w.function_name, c.relowner::regrole) else '' end
        from fence.wanted_triggers(p_protected.id, p_protected.table_id) w, pg_class c
        where c.oid = p_protected.table_id and w.function_name not in ('fence.check_truncate', 'fence.guard_statement')
    loop
        execute v_sql;
    end loop;
end
$$;

-- fence.trigger_functions(protected) → the functions of the triggers of a protected table: their kind, which is the end of
-- their name, and their body. They are made for the table, so that a write is checked by planned statements.
--
-- Statement triggers check each resource of a statement once, by its transition tables (fencegate_old, fencegate_new).
-- Most statements write one row. For those a look at that row is enough, and costs half as much as to find the resources
-- that differ.
-- Free inserts are not checked, but for a resource that is too long for a name: nobody could claim, change or delete the
-- row. (A row that moves to another partition is deleted and inserted.)
-- The row trigger is for partitioned tables and for replication (fence.wanted_triggers). All compare the resource of
-- a row with fence.admitted, and pass what is missing there to fence.check_rows.
--
-- The functions run with the rights of fencegate, and names of columns and literals come from the owner of the table. So
-- each name is quoted, and the caller quotes each body as a whole. To set search_path would cost as much as the check,
-- so all names are qualified instead, operators too. Texts are compared in the collation "C", which tells all of them
-- apart.
create or replace function fence.trigger_functions(p_protected fence.protected_tables)
returns table (kind text, body text)
language plpgsql stable
as $$
declare
    v_table    regclass := p_protected.table_id;
    v_template text := p_protected.template;
    v_all      text := 'true';
    v_observe  boolean := p_protected.mode = 'observe';
    v_free     boolean := p_protected.inserts = 'free';
    v_long     text := format(
        'if not %L and exists (select %%s where pg_catalog.octet_length(%%s) operator(pg_catalog.>) 512) then
            raise exception using errcode = ''invalid_parameter_value'', message = pg_catalog.format(
                ''the resource of a row of %%%%s is too long for a name, which has 1 to 512 bytes'',
                tg_relid::pg_catalog.regclass);
        end if;', v_observe);
begin
    select coalesce(string_agg(format('%I%s as %1$I', c.name, c.collation), ', '), v_all) into v_all
    from (
        select distinct t.column_name as name,
            case when t.is_text then ' collate pg_catalog."C"' else '' end as collation
        from fence.template_columns(v_table, v_template) t where t.literal is null) c;
    return query
    select t.event, format($body$
        #variable_conflict use_column
        declare
            v_missing pg_catalog.text[];
        begin
            if (select (select true from fence.admitted a where a.resource operator(pg_catalog.=) o.resource limit 1)
                    and (select true from %1$s limit 1 offset 1) is null%2$s
                from (select %3$s as resource from (select %4$s from %1$s limit 1) r) o)
            then
                return null;
            end if;
            v_missing := array(
                select w.resource
                from (select %3$s as resource from (select distinct %4$s from %5$s) r) w
                where (select true from fence.admitted a where a.resource operator(pg_catalog.=) w.resource limit 1)
                    is null);
            if v_missing operator(pg_catalog.<>) '{}' then
                perform fence.check_rows(tg_relid, v_missing, %6$L);
            end if;
            return null;
        end
        $body$, t.first, t.same, fence.resource_expression(v_table, v_template, 'r'), v_all, t.rows, v_observe)
    from (values
        ('insert', 'fencegate_new', '', 'fencegate_new'),
        ('update', 'fencegate_new',
            format(' and (select %s operator(pg_catalog.=) o.resource from (select %s from fencegate_old limit 1) r)',
                fence.resource_expression(v_table, v_template, 'r'), v_all),
            format('(select %1$s from fencegate_old union all select %1$s from fencegate_new) u', v_all)),
        ('delete', 'fencegate_old', '', 'fencegate_old')) as t (event, first, same, rows)
    -- Only what fence.wanted_triggers uses: anybody could make a trigger with another one.
    where exists (select from pg_class c where c.oid = v_table and c.relkind <> 'p')
        and not (t.event = 'insert' and v_free)
    union all
    select 'insert', format('begin %s return null; end', format(v_long, 'from fencegate_new r',
        fence.resource_expression(v_table, v_template, 'r')))
    from pg_class c
    where c.oid = v_table and c.relkind = 'r' and v_free and fence.may_be_too_long(v_table, v_template)
    union all
    select 'row', format($body$
        #variable_conflict use_column
        declare
            v_new pg_catalog.text;
            v_old pg_catalog.text;
        begin
            if tg_op operator(pg_catalog.=) any (%4$L::pg_catalog.text[]) then
                v_new := %1$s;
                if not exists (select from fence.admitted a where a.resource operator(pg_catalog.=) v_new) then
                    perform fence.check_rows(tg_relid, array[v_new], %3$L);
                end if;
            end if;
            if tg_op operator(pg_catalog.<>) 'INSERT' then
                v_old := %2$s;
                -- One condition with a query in it would run the query for each row.
                if (v_old operator(pg_catalog.=) v_new) is not true then
                    if not exists (select from fence.admitted a where a.resource operator(pg_catalog.=) v_old) then
                        perform fence.check_rows(tg_relid, array[v_old], %3$L);
                    end if;
                end if;
            end if;
            %5$s
            return null;
        end
        $body$, fence.resource_expression(v_table, v_template, 'new'),
            fence.resource_expression(v_table, v_template, 'old'), v_observe,
            array_remove(array['INSERT', 'UPDATE'], case when v_free then 'INSERT' end),
            case when v_free and fence.may_be_too_long(v_table, v_template) then
                'if tg_op operator(pg_catalog.=) ''INSERT'' then '
                || format(v_long, '', fence.resource_expression(v_table, v_template, 'new')) || ' end if;' end);
end
$$;

-- fence.remake_trigger_functions() replaces the functions of the triggers of all protected tables, after a migration has
-- replaced the functions that they are made from. The caller has locked fence.protected_tables against changes.
--
-- A table whose template does not fit any more keeps its functions. fence.protected shows that.
create or replace function fence.remake_trigger_functions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_protected fence.protected_tables;
begin
    for v_protected in
        select p.* from fence.protected_tables p join pg_class c on c.oid = p.table_id order by p.id
    loop
        begin
            perform fence.make_trigger_functions(v_protected);
        exception
            when invalid_parameter_value or undefined_column or datatype_mismatch then
                null;
        end;
    end loop;
end
$$;
