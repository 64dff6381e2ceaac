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
