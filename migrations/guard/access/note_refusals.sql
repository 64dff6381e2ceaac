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
