-- fence.admit_only(resources, resource) → of these resources, whose fences this transaction has raised, rows of only
-- this one may be written from now on (fence.admitted). null: rows of all of them.
create or replace function fence.admit_only(p_resources text[], p_resource text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    update fence.fences f
    set admitted_in = case when p_resource is null or f.resource = p_resource then pg_current_xact_id() end
    where f.resource = any (p_resources)
        and coalesce(f.admitted_in = pg_current_xact_id(), false) <> (p_resource is null or f.resource = p_resource)
$$;
