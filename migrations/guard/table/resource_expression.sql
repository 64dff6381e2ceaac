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
