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
