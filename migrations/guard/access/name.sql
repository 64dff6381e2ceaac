-- fence.may_use(name) → whether the role of the session may use the name by SQL: guard it, lease it, and write rows of
-- protected tables that belong to it. A role that may use a name may use all names below it.
--
-- A role with the right to call fence.all_names may use all names, others those of their entries (fence.is_allowed). It
-- is session_user that counts, not current_user, which is the schema's owner in the functions of applications.
--
-- The planner inlines the expression, so a guard of a role that may use all names reads no table for it.
create or replace function fence.may_use(p_name text) returns boolean
language sql stable
return has_function_privilege(session_user, 'fence.all_names'::regproc, 'execute') or fence.is_allowed(p_name);

-- fence.check_use(name) raises 42501 unless the role of the session may use the name (fence.may_use). The error is the same
-- for a name that exists and for one that does not (P15).
create or replace function fence.check_use(p_name text) returns void
language plpgsql
as $$
begin
    if not fence.may_use(p_name) then
        raise exception 'the role % may not use the name %', session_user, fence.quote_begin(p_name)
            using errcode = 'insufficient_privilege', hint = format(
                'An administrator allows it and all names below it: select fence.allow_names(%L, %s).',
                quote_ident(session_user), fence.quote_begin(p_name));
    end if;
end
$$;

-- fence.is_allowed(name) is fence.may_use without its quick test: an entry in fence.allowed_names covers the name, or the
-- role may use all names as a member of a role whose rights it does not inherit (fence.names_of). No entry covers null.
--
-- Entries are those of the snapshot of the statement. Names and operators are qualified, because fence.guard, which calls
-- this, has not set search_path. Each statement finds an entry by its index, so many entries cost a guard nothing more.
create or replace function fence.is_allowed(p_name text) returns boolean
language plpgsql stable security definer
set enable_seqscan = off
as $$
declare
    v_segment pg_catalog.text;
    v_prefix  pg_catalog.text;
begin
    foreach v_segment in array pg_catalog.string_to_array(coalesce(p_name, ''), '/') loop
        v_prefix := pg_catalog.concat_ws('/', v_prefix, v_segment);
        perform from fence.allowed_names n
        where n.prefix operator(pg_catalog.=) v_prefix and pg_catalog.pg_has_role(session_user, n.role_id, 'member');
        if found then
            return true;
        end if;
    end loop;
    return fence.names_of(session_user) is null;
end
$$;

-- fence.names_of(role) → the prefixes of the names that a role may use by SQL, in order: the name itself, and all names
-- below it. null: all names; none: no name.
--
-- The rights of a role are its own and those of all roles that it is a member of, also of those that it does not inherit
-- from, because a session may SET ROLE to them.
create or replace function fence.names_of(p_role name) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
begin
    return case when not exists (
            select from pg_proc p, aclexplode(p.proacl) a
            where p.oid = 'fence.all_names'::regproc and pg_has_role(p_role, a.grantee, 'member'))
        then array(
            select distinct n.prefix::text collate "C"
            from fence.allowed_names n where pg_has_role(p_role, n.role_id, 'member') order by 1)
        end;
end
$$;

-- fence.all_names() does nothing. The right to call it is the right to use all names by SQL (fence.may_use).
create or replace function fence.all_names() returns void
language sql
as $$
$$;

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
