-- fence.guard_by_settings(resource, token, sequence, lease_id, undo) is fence.guard_by_rule for the write token of the
-- settings of a transaction (fence.given_token). undo: a rejection keeps no fence locked (fence.guard_or_undo). The
-- verdict is null for a resource that is too long for a name and, with undo, for one that the role may not use. Raises
-- what fence.guard_by_rule raises, and 40001 as fence.no_policy_came does.
create or replace function fence.guard_by_settings(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_undo boolean) returns fence.ruling
language plpgsql
as $$
declare
    v_ruling fence.ruling;
begin
    -- As in fence.guard.
    update fence.fences f
    set last_token = p_token, last_sequence = coalesce(p_sequence, 0), last_digest = null,
        admitted_in = pg_current_xact_id()
    where f.resource = p_resource and p_lease_id is null
        and fence.fast_path_admits(f, p_token, p_sequence)
        and not exists (select from fence.policies)
        and fence.may_use(p_resource);
    if found then
        perform fence.bound_transaction('fencegate.guard_timeout', '60 s');
        perform fence.no_policy_came();
        v_ruling.verdict := 'admitted';
    elsif fence.is_name(p_resource) and (fence.may_use(p_resource) or not p_undo) then
        if p_undo then
            v_ruling := fence.guard_or_undo(p_resource, p_token, p_sequence, p_lease_id, null);
        else
            v_ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, null);
        end if;
    end if;
    return v_ruling;
end
$$;
