-- fence.has_external_tokens(name) → whether the policy says that another lock service issues the tokens of the name.
create or replace function fence.has_external_tokens(p_name text) returns boolean
language plpgsql stable
as $$
begin
    return exists (select from fence.policies)
        and exists (select from fence.policy_for(p_name) p where p.authority = 'external');
end
$$;
