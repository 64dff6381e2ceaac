-- fence.disallow_names(role, prefix) takes back what fence.allow_names gave, but not the last prefix of a role.
--
-- For the owner of the schema. Returns true. Raises 22023 for a prefix that the role does not have, and 55000 for its last one.
create or replace function fence.disallow_names(p_role regrole, p_prefix text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    lock table fence.allowed_names in share row exclusive mode;
    delete from fence.allowed_names n where n.role_id = p_role and n.prefix = p_prefix;
    perform fence.require(found, format('the role %s has no prefix %s', p_role,
        coalesce(fence.quote_begin(p_prefix), 'null')));
    if not exists (select from fence.allowed_names n where n.role_id = p_role) then
        raise exception '% is the last prefix of the role %', fence.quote_begin(p_prefix), p_role
            using errcode = 'object_not_in_prerequisite_state', hint = format(
                'To let it use all names: select fence.allow_names(%L, ''''). To let it use none, revoke its rights.', p_role);
    end if;
    perform fence.note_action('names_disallowed', p_prefix, jsonb_build_object('role', p_role::text));
    return true;
end
$$;
