-- fence.resource_expression(table, template, row) → an SQL expression for the resource of a row; row is the SQL name of
-- the row. Raises what fence.template_columns raises.
--
-- All its names are qualified (fence.trigger_functions). It fails for a column that was given another type since: the
-- text of most types depends on settings, or could look like several segments. It must fail before the server casts the
-- value: the cast of a user's type is a function of the user. So an integer is one of the types that coalesce accepts
-- beside a bigint, and has an operator that other numbers lack; a uuid is one beside a uuid; a text has a collation.
create or replace function fence.resource_expression(p_table regclass, p_template text, p_row text) returns text
language sql stable
as $$
    select string_agg(
        case when c.literal is not null then quote_literal(c.literal) || '::pg_catalog.text'
            else format(
                case
                    when c.is_text then 'fence.segment(%s.%I collate pg_catalog."C")'
                    when c.is_uuid then 'coalesce(coalesce(%s.%I, null::pg_catalog.uuid)::pg_catalog.text, ''%%null'')'
                    else 'coalesce((coalesce(%s.%I, null::pg_catalog.int8) operator(pg_catalog.|) 0::pg_catalog.int8)'
                        '::pg_catalog.text, ''%%null'')'
                end, p_row, c.column_name)
        end, ' operator(pg_catalog.||) ''/'' operator(pg_catalog.||) ' order by c.index)
    from fence.template_columns(p_table, p_template) c
$$;
