-- fence.delete_policy(prefix, principal, address) → whether there was a policy of the prefix itself. It is removed, and
-- the commit says so durably, also if another transaction removed it. See fence.note_action for the last two.
create or replace function fence.delete_policy(
    p_prefix text, p_principal text default null, p_address text default null)
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before fence.policies;
begin
    delete from fence.policies p where p.prefix = p_prefix returning p.* into v_before;
    perform fence.confirm_read();
    if v_before.prefix is null then
        return false;
    end if;
    perform fence.note_action('policy_deleted', p_prefix,
        jsonb_build_object('before', fence.policy_details(v_before)), p_principal, p_address);
    perform pg_notify('fence_policies', '');
    return true;
end
$$;
