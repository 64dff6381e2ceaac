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
