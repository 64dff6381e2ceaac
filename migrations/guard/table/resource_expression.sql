-- fence.resource_expression(table, template, row) → an SQL expression for the resource of a row; row is the SQL name of
-- the row. Raises what fence.template_columns raises.
--
-- The expression fails for a column that was given another type since: each kind of column has an operator or a clause
-- that others lack. The text of most types depends on settings, or could look like several segments.
create or replace function fence.resource_expression(p_table regclass, p_template text, p_row text) returns text
language sql stable
as $$
<<<<<<< HEAD
    select string_agg(
        case when c.literal is not null then quote_literal(c.literal)
            else format(
                case c.type
                    when 'uuid'::regtype then 'coalesce(coalesce(%s.%I, null::uuid)::text, ''%%null'')'
                    when 'text'::regtype then 'fence.segment(%s.%I collate "C")'
                    when 'varchar'::regtype then 'fence.segment(%s.%I collate "C")'
                    else 'coalesce((%s.%I | 0::smallint)::text, ''%%null'')'
                end, p_row, c.column_name)
        end, ' || ''/'' || ' order by c.index)
    from fence.template_columns(p_table, p_template) c
=======
declare
    v_segment record;
    v_terms   text[] := '{}';
begin
    for v_segment in
        select s.literal, s.column_name, a.attname, a.attgenerated,
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
        if v_segment.literal is not null then
            v_terms := v_terms || (quote_literal(v_segment.literal) || '::pg_catalog.text');
        elsif v_segment.attname is null then
            raise exception 'the table % has no column %', p_table, quote_literal(v_segment.column_name)
                using errcode = 'undefined_column';
        elsif v_segment.base in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'uuid'::regtype)
                and v_segment.attgenerated <> 'v' then
            v_terms := v_terms || format('coalesce(%s.%I::pg_catalog.text, ''%%null'')', p_row, v_segment.attname);
        elsif v_segment.base in ('text'::regtype, 'varchar'::regtype) and v_segment.attgenerated <> 'v' then
            v_terms := v_terms || format('fence.segment(%s.%I::pg_catalog.text)', p_row, v_segment.attname);
        else
            raise exception 'the column % of % cannot be part of a resource', quote_literal(v_segment.column_name),
                p_table
                using errcode = 'datatype_mismatch',
                detail = 'Its type must be text, varchar, uuid, smallint, integer or bigint, or a domain over one, '
                    'and it must be stored.',
                hint = 'Add a stored generated column of such a type.';
        end if;
    end loop;
    return array_to_string(v_terms, ' operator(pg_catalog.||) ''/'' operator(pg_catalog.||) ');
end
>>>>>>> c1372ae0c224a5d009616c2cda62e170acb0d4c7
$$;
