-- fence.write_policies(resources) → which of the resources have a policy that concerns writes.
--
-- governed    those of which fence.admit decides every write, and no fast path
-- same_token  those with nothing but the rule same_token, which the fast path knows
create or replace function fence.write_policies(p_resources text[], out governed text[], out same_token text[])
language plpgsql
as $$
begin
    governed := '{}';
    same_token := '{}';
    if exists (select from fence.policies) then
        select coalesce(array_agg(r.resource) filter (where p.governed), '{}'),
            coalesce(array_agg(r.resource) filter (where not p.governed), '{}')
        into governed, same_token
        from (select distinct u collate "C" from unnest(p_resources) u) r (resource)
        cross join lateral (
            select p.rule, p.authority <> 'builtin' or p.require_lease_id or p.require_live_lease
                    or p.max_hold_ms is not null as governed
            from fence.policy_for(r.resource) p) p
        where p.governed or p.rule = 'same_token';
    end if;
end
$$;
