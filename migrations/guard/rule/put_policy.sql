-- fence.put_policy(prefix, rule, authority, require_lease_id, require_live_lease, max_hold_ms, leases,
-- require_principal_owner, policies_max, own_max, principal, address) sets the policy of the prefix. See
-- fence.note_action for the last two.
--
-- Raises LF007 if there is none on the prefix, and policies_max on others, or own_max that the principal has set first.
-- Concurrent calls may exceed that, by one each.
create or replace function fence.put_policy(
    p_prefix text, p_rule text, p_authority text, p_require_lease_id boolean, p_require_live_lease boolean,
    p_max_hold_ms bigint, p_leases text, p_require_principal_owner boolean, p_policies_max bigint, p_own_max bigint,
    p_principal text default null, p_address text default null)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before fence.policies;
    v_after  fence.policies;
begin
    perform fence.commit_durably();
    select * into v_before from fence.policies p where p.prefix = p_prefix for update;
    if not found and exists (
        select from fence.policies p
        having count(*) >= p_policies_max or count(*) filter (where p.principal = p_principal) >= p_own_max)
    then
        raise exception 'there are as many policies as you may fill: % of all, and of yours %; delete one',
            p_policies_max, coalesce(p_own_max, p_policies_max) using errcode = 'LF007';
    end if;
    insert into fence.policies as p (
        prefix, rule, authority, require_lease_id, require_live_lease, max_hold_ms, leases,
        require_principal_owner, principal)
    values (p_prefix, p_rule, p_authority, p_require_lease_id, p_require_live_lease, p_max_hold_ms, p_leases,
        p_require_principal_owner, coalesce(p_principal, 'sql:' || session_user))
    on conflict (prefix) do update
    set rule = excluded.rule, authority = excluded.authority, require_lease_id = excluded.require_lease_id,
        require_live_lease = excluded.require_live_lease, max_hold_ms = excluded.max_hold_ms,
        leases = excluded.leases, require_principal_owner = excluded.require_principal_owner,
        updated_at = clock_timestamp()
    returning p.* into v_after;
    perform fence.note_action('policy_set', p_prefix,
        fence.policy_details(v_after) || jsonb_build_object('before', fence.policy_details(v_before)),
        p_principal, p_address);
    perform pg_notify('fence_policies', '');
end
$$;
