-- fence.prefixes(name) → every prefix whose policy could apply to the name: '' first, the name itself last.
create or replace function fence.prefixes(p_name text) returns text[]
language plpgsql immutable parallel safe
as $$
begin
    return array[''] || fence.ancestors(p_name) || array[p_name];
end
$$;
