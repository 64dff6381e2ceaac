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
    where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and a.attname = any (p_names)
    order by a.attnum;
end
$$;
