-- fence.policy_for(name) → the policy of the longest prefix of the name that has one. No row means the defaults:
-- strict, builtin, nothing required.
create or replace function fence.policy_for(p_name text) returns setof fence.policies
language sql stable rows 1
as $$
    select p.*
    from fence.policies p
    where p.prefix = any (array[''] || fence.ancestors(p_name) || p_name)
    order by length(p.prefix) desc
    limit 1
$$;
