-- fence.owner_is_allowed(request) → whether the policy lets the principal of the request use its owner_id
-- (require_principal_owner). A request to a gateway that asks for no credential has no principal: it may use any.
create or replace function fence.owner_is_allowed(p_request fence.leases) returns boolean
language plpgsql stable
as $$
begin
    -- The common case is an expression without a query, which costs a tenth.
    if p_request.principal = '' or starts_with(p_request.owner_id || '/', p_request.principal || '/') then
        return true;
    end if;
    return not exists (select from fence.policies p where p.require_principal_owner)
        or not exists (select from fence.policy_for(p_request.lock) p where p.require_principal_owner);
end
$$;
