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
