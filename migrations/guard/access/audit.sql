-- fence.note_action(action, name, details, principal, address) adds an entry to fence.audit: this transaction does what
-- an administrator wants. principal null: it was called by SQL, by the role of the connection; other roles than the
-- schema's owner are bounded (fence.check_actor). Members of details that are null are left out.
create or replace function fence.note_action(
    p_action text, p_name text, p_details jsonb, p_principal text default null, p_address text default null)
returns void
language sql
as $$
    select fence.move_sequences();
    insert into fence.audit (action, name, details, principal, address)
    values (p_action, p_name, jsonb_strip_nulls(p_details), coalesce(p_principal, fence.check_actor('sql:' || session_user, session_user <> current_user)),
        coalesce(p_address, host(inet_client_addr()), 'local'))
$$;

-- fence.check_actor(principal, scoped) → the principal, which does what an administrator may do.
--
-- scoped  it administers only some names. Then it may have 10,000 entries in fence.audit in a day: it can fill neither
--         the disk nor the log. An administrator of all names is not bounded, nor are the callers without a credential,
--         whose entries the sweep deletes (fence.sweep_audit). Refused accesses do not count.
--
-- Raises LF007 if it has as many.
create or replace function fence.check_actor(p_principal text, p_scoped boolean) returns text
language plpgsql stable set enable_seqscan = off
as $$
declare
    c_entries_max constant integer := 10000;
begin
    if p_scoped and p_principal <> 'anonymous' and clock_timestamp() - interval '1 day' < (
        select a.at from fence.audit a where a.principal = p_principal and a.action <> 'access_refused'
        order by a.at desc offset c_entries_max - 1 limit 1)
    then
        raise exception 'you have taken % actions of an administrator within a day, as many as one that administers '
            'only some names may: try again later', c_entries_max using errcode = 'LF007';
    end if;
    return p_principal;
end
$$;

-- fence.note_refusals(refusals) adds entries to fence.audit: accesses that a gateway has refused. refusals is an array
-- of objects with principal, address, name and details, as many as the gateway bounds. They are prunable
-- (fence.sweep_audit), and no action of an administrator (fence.check_actor).
create or replace function fence.note_refusals(p_refusals jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    insert into fence.audit (action, principal, address, name, details)
    select 'access_refused', r.principal, r.address, r.name, r.details
    from jsonb_to_recordset(p_refusals) as r (principal text, address text, name text, details jsonb)
$$;
