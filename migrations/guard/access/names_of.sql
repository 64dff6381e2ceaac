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
