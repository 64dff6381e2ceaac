-- fence.resource_expression(table, template, row) → an SQL expression for the resource of a row; row is the SQL name of
-- the row. It has no cast, because a trigger evaluates it with the rights of the schema's owner: the table's owner could
-- change the type of a column to one whose cast to text is a function of its own. concat calls no function of a user.
--
-- Raises 22023 if the template is invalid, 42703 for a missing column, 42804 for a column of a type whose text
-- depends on settings, or is not fixed for other reasons.
create or replace function fence.resource_expression(p_table regclass, p_template text, p_row text) returns text
language plpgsql stable
as $$
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
            v_terms := v_terms || format(
                'case when %1$s.%2$I is null then ''%%null'' else pg_catalog.concat(%1$s.%2$I) end',
                p_row, v_segment.attname);
        elsif v_segment.base in ('text'::regtype, 'varchar'::regtype) and v_segment.attgenerated <> 'v' then
            v_terms := v_terms || format(
                'case when %1$s.%2$I is null then ''%%null'' else fence.segment(pg_catalog.concat(%1$s.%2$I)) end',
                p_row, v_segment.attname);
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
$$;
