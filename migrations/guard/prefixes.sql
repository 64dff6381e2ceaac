-- fence.prefixes(name) → every prefix whose policy could hold for the name, '' first, the name itself last.
create or replace function fence.prefixes(p_name text) returns text[]
language sql immutable parallel safe
as $$
    select array(
        select array_to_string((string_to_array(p_name, '/'))[1:depth], '/')
        from generate_series(0, cardinality(string_to_array(p_name, '/'))) depth
        order by depth)
$$;
