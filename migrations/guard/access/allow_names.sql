-- fence.allow_names(role, prefix) lets a role of an application use a name, and all names below it, by SQL. '' is every
-- name, which such a role may use at first. From its first prefix on, it may use only the names of its prefixes; '' takes
-- them away again. null is for a role that gets its rights, perhaps again: it keeps the prefixes that it has, or may use
-- all names.
--
-- For the owner of the schema. Returns true. Forgets the entries of roles that were dropped. Raises 22023 for a prefix that is neither a
-- name nor '', and 55000 for a role that could use all names all the same.
create or replace function fence.allow_names(p_role regrole, p_prefix text default null) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.require(p_prefix is null or p_prefix = '' or fence.is_name(p_prefix),
        format('the prefix is %s, it must be a name, or empty for all names', fence.quote_begin(p_prefix)));
    lock table fence.allowed_names in share row exclusive mode;
    if p_prefix is null then
        if not exists (select from fence.allowed_names n where n.role_id = p_role) then
            execute format('grant execute on function fence.all_names to %s', p_role);
        end if;
        return true;
    end if;
    delete from fence.allowed_names n
    where n.role_id = p_role and p_prefix = '' or not exists (select from pg_roles r where r.oid = n.role_id);
    if p_prefix = '' then
        execute format('grant execute on function fence.all_names to %s', p_role);
    elsif has_function_privilege(p_role, 'fence.acquire_lease'::regproc, 'execute') then
        raise exception 'the role % may use all names: it is that of a gateway, a superuser, or the owner of the schema',
            p_role using errcode = 'object_not_in_prerequisite_state';
    else
        execute format('revoke execute on function fence.all_names from %s', p_role);
        insert into fence.allowed_names (role_id, prefix) values (p_role, p_prefix) on conflict do nothing;
        if not found then
            return true;
        elsif fence.names_of(pg_get_userbyid(p_role)) is null then
            raise exception 'the role % is a member of one that may use all names', p_role
                using errcode = 'object_not_in_prerequisite_state', hint = 'Restrict that role first.';
        end if;
    end if;
    perform fence.note_action('names_allowed', p_prefix, jsonb_build_object('role', p_role::text));
    return true;
end
$$;
