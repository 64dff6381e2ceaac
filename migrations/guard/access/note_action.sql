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
