-- fence.set_token(token, sequence, resource, lease_id): the triggers of protected tables guard the writes of this
-- transaction with this token, as fence.guard would. For applications whose ORM writes the statements. With a resource,
-- the token counts for that alone; lease_id is that of the lease, if the policy asks for it. A null token takes the
-- setting back. Whether the token is admitted is decided by the first write to each resource.
--
-- The setting names the transaction: see fence.given_token. In autocommit mode it ends with this call. Returns true.
create or replace function fence.set_token(
    token bigint, sequence bigint default null, resource text default null, lease_id uuid default null) returns boolean
language plpgsql -- which keeps the plan; names are qualified, as in fence.guard
as $$
begin
    perform
        pg_catalog.set_config('fencegate.token', case when set_token.token is null then '' else pg_catalog.concat(
            set_token.token, case when set_token.sequence is not null then '.' end, set_token.sequence, '@',
            pg_catalog.pg_current_xact_id()) end, true),
        pg_catalog.set_config('fencegate.resource', coalesce(set_token.resource, ''), true),
        pg_catalog.set_config('fencegate.lease_id', pg_catalog.concat(set_token.lease_id), true);
    return true;
end
$$;
