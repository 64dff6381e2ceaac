-- fence.resource_expression(table, template, row) → an SQL expression for the resource of a row; row is the SQL name of
-- the row. Raises what fence.template_columns raises.
--
-- The expression fails for a column that was given another type since: each kind of column has an operator or a clause
-- that others lack. The text of most types depends on settings, or could look like several segments.
create or replace function fence.resource_expression(p_table regclass, p_template text, p_row text) returns text
language sql stable
as $$
    select string_agg(
        case when c.literal is not null then quote_literal(c.literal)
            else format(
                case c.type
                    when 'uuid'::regtype then 'coalesce(coalesce(%s.%I, null::pg_catalog.uuid)::pg_catalog.text, ''%%null'')'
                    when 'text'::regtype then 'fence.segment(%s.%I collate pg_catalog."C")'
                    when 'varchar'::regtype then 'fence.segment(%s.%I collate pg_catalog."C")'
                    else 'coalesce((%s.%I operator(pg_catalog.|) 0::smallint)::pg_catalog.text, ''%%null'')'
                end, p_row, c.column_name)
        end, ' operator(pg_catalog.||) ''/'' operator(pg_catalog.||) ' order by c.index)
    from fence.template_columns(p_table, p_template) c
$$;
