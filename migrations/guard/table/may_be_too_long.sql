-- fence.may_be_too_long(table, template) → whether resources of the rows can have more than the 512 bytes of a name: a
-- column of the template has a text. For free inserts, which nothing else checks.
create or replace function fence.may_be_too_long(p_table regclass, p_template text) returns boolean
language sql stable
as $$
    select exists (
        select from regexp_matches(p_template, '[{]([^{}]+)[}]', 'g') as c (name)
        join pg_attribute a on a.attrelid = p_table and a.attname = c.name[1]
        join pg_type t on t.oid = a.atttypid and t.typcategory = 'S')
$$;
