-- fence.ancestors(name) → the names above a name, the topmost first; none for a name without a slash.
create or replace function fence.ancestors(p_name text) returns text[]
language plpgsql immutable parallel safe
as $$
declare
    v_segments  text[] := string_to_array(p_name, '/');
    v_ancestors text[] := '{}';
begin
    for depth in 1 .. cardinality(v_segments) - 1 loop
        v_ancestors := v_ancestors || array_to_string(v_segments[1:depth], '/');
    end loop;
    return v_ancestors;
end
$$;
