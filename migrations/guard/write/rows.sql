-- fence.write_rows(kind, table, resource, role, row, where, conflict, returning) → how many rows of a table were
-- written, and those rows; see fence.row_statement.
--
-- The statement runs as the role (fence.open_table; null: as the caller), and with the search_path of the session, for
-- the code of the table's triggers. Other settings that change the text of values are fixed. Not security definer: such
-- a function could not change the role. Raises 42501 if the role lacks a right, and what the table raises.
create or replace function fence.write_rows(
    p_kind text, p_table regclass, p_resource text, p_role name, p_row json, p_where json, p_conflict text[],
    p_returning text[],
    out row_count bigint, out returned json)
language plpgsql
set timezone = 'UTC' set datestyle = 'ISO, MDY' set intervalstyle = 'postgres' set bytea_output = 'hex'
set extra_float_digits = 1
as $$
declare
    v_own_role text := current_setting('role');
    v_sql      text := fence.row_statement(
        p_kind, p_table, p_resource, p_row, p_where, p_conflict, p_returning);
begin
    perform set_config('role', coalesce(p_role, v_own_role), true);
    execute v_sql into row_count, returned using p_row, p_where;
    perform set_config('role', v_own_role, true);
end
$$;

-- fence.row_statement(kind, table, resource, row, where, conflict, returning) → an SQL statement that writes to a
-- protected table and returns the number of its rows, and those rows as JSON. Its parameters are row and where.
--
-- resource   update and delete find only its rows: how many rows match must not tell what others have
-- kind       insert, upsert, update or delete
-- row        the values, a JSON object by column; for update the changed ones; for insert and upsert perhaps a JSON array
--            of such objects, a row each, all with the columns of the first one
-- where      the values that the rows have, for update and delete; null: the column is null
-- conflict   the columns of a unique constraint, for upsert: a row that has these values is updated
-- returning  the columns of the returned rows; none: no rows are returned
--
-- Values become the types of the columns in the statement: json_to_record(set) takes each as text, without loss. No text
-- of the caller becomes SQL (fence.typed_columns). Raises 22023 as fence.typed_columns does.
create or replace function fence.row_statement(
    p_kind text, p_table regclass, p_resource text, p_row json, p_where json, p_conflict text[], p_returning text[])
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    v_many      boolean := json_typeof(p_row) = 'array';
    v_names     text[] := array(select json_object_keys(case when v_many then p_row->0 else p_row end));
    v_row       record;
    v_where     record;
    v_conflict  text := (select string_agg(c.quoted, ', ') from fence.typed_columns(p_table, p_conflict) c);
    v_returning text := (select string_agg('t.' || c.quoted, ', ') from fence.typed_columns(p_table, p_returning) c);
    v_dml       text;
begin
    select string_agg(c.quoted, ', ') as columns, string_agg('r.' || c.quoted, ', ') as values,
        string_agg(format('%s = r.%s', c.quoted, c.quoted), ', ') as assignments,
        string_agg(format('%s = excluded.%s', c.quoted, c.quoted), ', ')
            filter (where c.name <> all (p_conflict)) as replacements,
        format('pg_catalog.%I($1) as r (%s)', case when v_many then 'json_to_recordset' else 'json_to_record' end,
            coalesce(string_agg(c.definition, ', '), 'none text')) as source
    into v_row
    from fence.typed_columns(p_table, v_names) c;

    select concat_ws(' and ', fence.resource_condition(p_table, p_resource, 't'),
            string_agg(case when w.is_null then format('t.%s is null', c.quoted)
                else format('t.%1$s %2$s w.%1$s', c.quoted, c.equals) end, ' and ')) as condition,
        format('pg_catalog.json_to_record($2) as w (%s)',
            coalesce(string_agg(c.definition, ', ') filter (where not w.is_null), 'none text')) as source
    into v_where
    from (select e.key, json_typeof(e.value) = 'null' as is_null from json_each(p_where) e) w
    join fence.typed_columns(p_table, array(select json_object_keys(p_where))) c on c.name = w.key;

    v_dml := case p_kind
        when 'delete' then format('delete from %s as t using %s where %s', p_table, v_where.source, v_where.condition)
        when 'update' then format('update %s as t set %s from %s, %s where %s',
            p_table, v_row.assignments, v_row.source, v_where.source, v_where.condition)
        else format('insert into %s as t %s select %s from %s',
            p_table, '(' || v_row.columns || ')', v_row.values, v_row.source)
    end;
    if p_kind = 'upsert' then
        v_dml := v_dml || format(' on conflict (%s) do %s', v_conflict,
            coalesce('update set ' || v_row.replacements, 'nothing'));
    end if;
    return format('with written as (%s returning %s) select pg_catalog.count(*), %s from written',
        v_dml, coalesce(v_returning, 'true'), case when v_returning is null then 'null'
            else 'pg_catalog.json_agg(pg_catalog.row_to_json(written.*))' end);
end
$$;

-- fence.resource_condition(table, resource, row) → an SQL condition: the row of a protected table belongs to the
-- resource; row is the SQL name of the row. It calls only functions that every role may call. Raises what
-- fence.template_columns raises.
create or replace function fence.resource_condition(p_table regclass, p_resource text, p_row text) returns text
language sql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
    select case when count(*) = cardinality(string_to_array(p_resource, '/'))
        then string_agg(case
            when c.literal is not null then (c.literal = s.segment)::text
            when s.segment = '%null' then format('%s.%I is null', p_row, c.column_name)
            else format('%1$s.%2$I is not null and pg_catalog.concat(%1$s.%2$I) collate pg_catalog."C" '
                'operator(pg_catalog.=) %3$L', p_row, c.column_name,
                case when c.is_text then fence.segment_value(s.segment) else s.segment end)
            end, ' and ')
        else 'false' end
    from fence.protected_tables p
    cross join lateral fence.template_columns(p_table, p.template) c
    cross join lateral split_part(p_resource, '/', c.index::integer) s (segment)
    where p.table_id = p_table
$$;

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

-- fence.segment_value(segment) → the text whose fence.segment it is; null: it is that of null, or of none. Raises 22021
-- if it encodes bytes that are not UTF-8.
create or replace function fence.segment_value(p_segment text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select v.value
    from (
        select case when p_segment = '%empty' then '' else convert_from(string_agg(
            case when left(m.part[1], 1) = '%' then decode(substr(m.part[1], 2), 'hex') else convert_to(m.part[1], 'UTF8') end,
            '' order by m.n), 'UTF8') end
        from regexp_matches(p_segment, '%[0-9A-F]{2}|[^%]+', 'g') with ordinality as m (part, n)) as v (value)
    where fence.segment(v.value) = p_segment
$$;

-- fence.typed_columns(table, names) → these columns of a table: their quoted names, how json_to_record defines them,
-- and the operator by which values of their type are equal.
--
-- All text comes from the catalog. An operator without a schema could be another one than that of the type. Raises
-- 22023 if the table has no such column.
create or replace function fence.typed_columns(p_table regclass, p_names text[])
returns table (name text, quoted text, definition text, equals text)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
declare
    v_missing text;
begin
    if p_names = '{}' then
        return;
    end if;
    select n into v_missing from unnest(p_names) n
    where not exists (select from pg_attribute a
        where a.attrelid = p_table and a.attname = n and a.attnum > 0 and not a.attisdropped)
    limit 1;
    if v_missing is not null then
        raise exception 'the table has no column %', to_json(left(v_missing, 100))
            using errcode = 'invalid_parameter_value';
    end if;
    return query
    select a.attname::text, quote_ident(a.attname),
        format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
        (with recursive types as (
            select t.* from pg_type t where t.oid = a.atttypid
            union all
            select t.* from types d join pg_type t on t.oid = d.typbasetype where d.typtype = 'd')
        -- Enums, arrays, ranges and composite types are compared by operators of the system.
        select format('operator(%I.=)', case when b.typtype = 'b' and b.typcategory <> 'A'
            then n.nspname else 'pg_catalog' end)
        from types b join pg_namespace n on n.oid = b.typnamespace where b.typtype <> 'd')
    from pg_attribute a
    where a.attrelid = p_table and a.attname = any (p_names)
    order by a.attnum;
end
$$;
