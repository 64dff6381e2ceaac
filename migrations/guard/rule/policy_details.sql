-- fence.policy_details(policy) → what a policy says, for fence.audit; null for no policy.
create or replace function fence.policy_details(p_policy fence.policies) returns jsonb
language sql stable
as $$
    select case when (p_policy).prefix is not null then to_jsonb(p_policy) - 'prefix' - 'updated_at' end
$$;
