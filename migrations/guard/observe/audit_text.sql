-- fence.audit_text(entry) → the JSON of an entry of fence.audit, whose hash its seal has. The same entry has the same
-- text on every version of PostgreSQL and in every session.
create or replace function fence.audit_text(p_entry fence.audit) returns text
language sql stable
as $$
    select jsonb_build_object(
        'id', p_entry.id, 'at', to_char(p_entry.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'principal', p_entry.principal, 'address', p_entry.address, 'action', p_entry.action, 'name', p_entry.name,
        'details', p_entry.details)::text
$$;
