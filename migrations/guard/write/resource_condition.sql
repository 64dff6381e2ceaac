-- fence.resource_condition(table, resource, row) → an SQL condition: the row of a protected table belongs to the
-- resource; row is the SQL name of the row. It calls only functions that every role may call. Raises what
-- fence.template_columns raises.
create or replace function fence.resource_condition(p_table regclass, p_resource text, p_row text) returns text
language sql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
as $$
    select case when count(*) = cardinality(string_to_array(p_resource, '/'))
        then string_agg(case
            when c.literal is not null then (c.literal = s.segment)::text
            when s.segment = '%null' then format('%s.%I is null', p_row, c.column_name)
            else format('%1$s.%2$I is not null and pg_catalog.concat(%1$s.%2$I) collate pg_catalog."C" '
                'operator(pg_catalog.=) %3$L', p_row, c.column_name,
                case when c.is_text then fence.segment_value(s.segment) else s.segment end)
            end, ' and ' order by c.index)
        else 'false' end
    from fence.protected_tables p
    cross join lateral fence.template_columns(p_table, p.template) c
    cross join lateral split_part(p_resource, '/', c.index::integer) s (segment)
    where p.table_id = p_table
$$;
