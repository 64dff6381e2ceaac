-- fence.set_token(token, sequence, resource, lease_id): the triggers of protected tables guard the writes of this
-- transaction with this token, as fence.guard would. For applications whose ORM writes the statements. With a resource,
-- the token counts for that alone; lease_id is that of the lease, if the policy asks for it. A null token takes the
-- setting back. Whether the token is admitted is decided by the first write to each resource.
--
-- The setting names the transaction: see fence.token_from_settings. In autocommit mode it ends with this call. Returns true.
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

-- fence.token_from_settings() → the write token of the settings fencegate.token and fencegate.lease_id; token is null if it is
-- not set. problem says what is wrong with the settings, and then the others are null. The lease_id is a secret, so no
-- text shows it.
--
-- A setting that was made by SET without LOCAL stays on its connection, which a pooler gives to another client. So a token
-- counts in the transaction alone that it was set for (fence.set_token), or on the connection whose options have it.
create or replace function fence.token_from_settings(
    out token bigint, out sequence bigint, out lease_id uuid, out problem text)
language plpgsql
as $$
declare
    v_setting  text := nullif(current_setting('fencegate.token', true), '');
    v_token    text := split_part(v_setting, '@', 1);
    v_lease_id text := nullif(current_setting('fencegate.lease_id', true), '');
    v_option   text;
begin
    problem := case
        when v_setting is null then null
        when v_token !~ '^[0-9]{1,16}([.][0-9]{1,18})?$'
            then format('fencegate.token is %L, want a token or token.sequence, such as 34 or 34.2', left(v_token, 50))
        when split_part(v_token, '.', 1)::bigint not between 1 and 9007199254740991
            then format('fencegate.token is %L, a fencing token is a positive integer below 2^53', v_token)
        when v_lease_id !~* '^([0-9a-f]{4}-?){7}[0-9a-f]{4}$' then 'fencegate.lease_id is not a UUID'
    end;
    if problem is null and split_part(v_setting, '@', 2) is distinct from pg_current_xact_id_if_assigned()::text then
        v_option := set_config('fencegate.token', null, true); -- what RESET sets it to
        perform set_config('fencegate.token', v_setting, true);
        if v_setting <> v_option then
            problem := 'fencegate.token was not set for this transaction: call fence.set_token first in it';
        end if;
    end if;
    if problem is null then
        token := split_part(v_token, '.', 1);
        sequence := nullif(split_part(v_token, '.', 2), '');
        lease_id := case when v_setting is not null then v_lease_id::uuid end;
    end if;
end
$$;
