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
            select p.rule, p.authority <> 'builtin' or p.require_lease_id or p.require_live_lease as governed
            from fence.policy_for(r.resource) p) p
        where p.governed or p.rule = 'same_token';
    end if;
end
$$;

-- fence.has_write_policy(name) → whether a policy says anything about writes to the name (fence.write_policies).
create or replace function fence.has_write_policy(p_name text) returns boolean
language plpgsql
as $$
begin
    return fence.write_policies(array[p_name]) <> row('{}'::text[], '{}'::text[]);
end
$$;

-- fence.has_external_tokens(name) → whether the policy says that another lock service issues the tokens of the name.
create or replace function fence.has_external_tokens(p_name text) returns boolean
language plpgsql stable
as $$
begin
    return exists (select from fence.policies)
        and exists (select from fence.policy_for(p_name) p where p.authority = 'external');
end
$$;

-- fence.hold_until(lock, granted_at, now) → when a lease on the lock that was granted then must end, by the policy in
-- force: max_hold_ms after the grant, but not before now. Null if no policy limits it.
create or replace function fence.hold_until(p_lock text, p_granted_at timestamptz, p_now timestamptz) returns timestamptz
language plpgsql
as $$
declare
    v_max_hold_ms bigint;
begin
    if not exists (select from fence.policies) then
        return null;
    end if;
    v_max_hold_ms := (select p.max_hold_ms from fence.policy_for(p_lock) p);
    return case when v_max_hold_ms is not null
        then greatest(p_granted_at + v_max_hold_ms * interval '1 millisecond', p_now) end;
end
$$;

-- fence.policy_details(policy) → what a policy says, for fence.audit; null for no policy.
create or replace function fence.policy_details(p_policy fence.policies) returns jsonb
language sql stable
as $$
    select case when (p_policy).prefix is not null then to_jsonb(p_policy) - 'prefix' - 'updated_at' end
$$;
