-- fence.has_write_policy(name) → whether a policy says anything about writes to the name (fence.write_policies).
create or replace function fence.has_write_policy(p_name text) returns boolean
language plpgsql
as $$
begin
    return fence.write_policies(array[p_name]) <> row('{}'::text[], '{}'::text[]);
end
$$;
