-- fence.template_columns(table, template) → the segments of a template in order: the literal text, or the name of a
-- column, whether it is a text, and the types that it may have: its own, and others with the same texts.
--
-- Raises 22023 if the template is invalid, 42703 for a missing column, 42804 for a column of a type whose text depends
-- on settings, or is not fixed for other reasons.
create or replace function fence.template_columns(p_table regclass, p_template text)
returns table (index bigint, literal text, column_name text, is_text boolean, types text[])
language plpgsql stable
as $$
#variable_conflict use_column
declare
    v_segment record;
begin
    for v_segment in
        select s.index, s.literal, s.column_name, a.attname, a.attgenerated, a.atttypid,
            (with recursive types as (
                select t.oid, t.typtype, t.typbasetype from pg_type t where t.oid = a.atttypid
                union all
                select t.oid, t.typtype, t.typbasetype from types d join pg_type t on t.oid = d.typbasetype
                where d.typtype = 'd')
            select b.oid from types b where b.typtype <> 'd') as base
        from fence.template_segments(p_template) s
        left join pg_attribute a on a.attrelid = p_table and a.attname = s.column_name and a.attnum > 0
            and not a.attisdropped
        order by s.index
    loop
        if v_segment.literal is null and v_segment.attname is null then
            raise exception 'the table % has no column %', p_table, quote_literal(v_segment.column_name)
                using errcode = 'undefined_column';
        elsif v_segment.literal is null and (v_segment.attgenerated = 'v' or v_segment.base not in (
            'smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'uuid'::regtype, 'text'::regtype,
            'varchar'::regtype))
        then
            raise exception 'the column % of % cannot be part of a resource', quote_literal(v_segment.column_name),
                p_table
                using errcode = 'datatype_mismatch',
                detail = 'Its type must be text, varchar, uuid, smallint, integer or bigint, or a domain over one, '
                    'and it must be stored.',
                hint = 'Add a stored generated column of such a type.';
        end if;
        return query select v_segment.index, v_segment.literal, v_segment.column_name,
            v_segment.base in ('text'::regtype, 'varchar'::regtype),
            array(
                select format('%I.%I', n.nspname, t.typname) from pg_type t join pg_namespace n on n.oid = t.typnamespace
                where t.oid = v_segment.atttypid or t.oid = any (case
                    when v_segment.base in ('text'::regtype, 'varchar'::regtype) then array['text', 'varchar']
                    when v_segment.base = 'uuid'::regtype then array['uuid']
                    else array['smallint', 'integer', 'bigint'] end::regtype[])
                order by t.oid);
    end loop;
end
$$;

-- fence.template_segments(template) → its segments in order: the literal text, or the name of a column.
--
-- A template is a path of names; a segment in braces is a column: accounts/{id}. Raises 22023 if it is not one.
create or replace function fence.template_segments(p_template text)
returns table (index bigint, literal text, column_name text)
language plpgsql immutable
as $$
declare
    v_bad text;
begin
    if p_template is null or not fence.is_name(p_template) then
        raise exception 'the template % is not a path, such as accounts/{id}', quote_nullable(left(p_template, 100))
            using errcode = 'invalid_parameter_value', hint = 'A segment is plain text or {column}.';
    end if;
    return query
    select s.n, case when s.segment !~ '[{}]' then s.segment end, substring(s.segment from '^[{]([^{}]+)[}]$')
    from regexp_split_to_table(p_template, '/') with ordinality as s (segment, n)
    order by s.n;
    select s into v_bad from regexp_split_to_table(p_template, '/') s
    where s ~ '[{}]' and s !~ '^[{][^{}]+[}]$' limit 1;
    if found then
        raise exception 'the segment % of the template is neither plain text nor one column in braces',
            quote_literal(left(v_bad, 100))
            using errcode = 'invalid_parameter_value', hint = 'A segment is plain text or {column}.';
    end if;
end
$$;

-- fence.resource_expression(table, template, row) → an SQL expression for the resource of a row; row is the SQL name of
-- the row. Raises what fence.template_columns raises.
--
-- A trigger evaluates it with the rights of the schema's owner. The table's owner may change the type of a column later
-- to one whose casts are functions of its own. So the expression has no cast of a column and no operator on one: concat
-- calls the output function of the type only. For a column of a type with other texts, or of a domain that was renamed,
-- it is null, which no transaction is admitted for.
create or replace function fence.resource_expression(p_table regclass, p_template text, p_row text) returns text
language plpgsql stable -- which keeps the plan: in SQL it would be planned in each claim
as $$
begin
    return (
        select string_agg(
            case when c.literal is not null then quote_literal(c.literal) || '::pg_catalog.text'
                else format(
                    'case when %1$s.%2$I is null then ''%%null'' '
                    'when pg_catalog.pg_typeof(%1$s.%2$I) operator(pg_catalog.=) any (%3$L::pg_catalog.regtype[])%4$s then '
                    || case when c.is_text
                        then 'fence.segment(pg_catalog.concat(%1$s.%2$I) collate pg_catalog."C")'
                        else 'pg_catalog.concat(%1$s.%2$I)' end || ' end',
                    p_row, c.column_name, array(select t from unnest(c.types) t where t like 'pg_catalog.%'), (
                        select format(' or pg_catalog.pg_typeof(%s.%I) operator(pg_catalog.=) pg_catalog.to_regtype(%L)',
                            p_row, c.column_name, t)
                        from unnest(c.types) t where t not like 'pg_catalog.%'))
            end, ' operator(pg_catalog.||) ''/'' operator(pg_catalog.||) ' order by c.index)
        from fence.template_columns(p_table, p_template) c);
end
$$;

-- fence.name_of_table(table) → its name with its schema, neither quoted; null if there is no such table.
create or replace function fence.name_of_table(p_table oid) returns text
language plpgsql stable -- which keeps the plan: in SQL it would be planned in each claim
as $$
begin
    return (
        select format('%s.%s', n.nspname, c.relname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.oid = p_table);
end
$$;
