-- fence.missing_usage(table, template) → the statement that gives the schema's owner, whose rights the triggers have,
-- the use of a schema that they need: that of the table, or of a domain of its template. null if no right is missing.
create or replace function fence.missing_usage(p_table regclass, p_template text) returns text
language sql stable
as $$
    select format('grant usage on schema %I to %I', n.nspname, current_user)
    from pg_namespace n
    where n.oid in (
            select c.relnamespace from pg_class c where c.oid = p_table
            union all
            select t.typnamespace
            from fence.template_columns(p_table, p_template) c
            join pg_attribute a on a.attrelid = p_table and a.attname = c.column_name
            join pg_type t on t.oid = a.atttypid)
        and not has_schema_privilege(n.oid, 'usage')
    order by n.nspname
    limit 1
$$;
