-- fence.given_token() → the write token of the settings fencegate.token and fencegate.lease_id; token is null if it is
-- not set. problem says what is wrong with the settings, and then the others are null. The lease_id is a secret, so no
-- text shows it.
create or replace function fence.given_token(
    out token bigint, out sequence bigint, out lease_id uuid, out problem text)
language plpgsql
as $$
declare
    v_token    text := nullif(current_setting('fencegate.token', true), '');
    v_lease_id text := nullif(current_setting('fencegate.lease_id', true), '');
begin
    problem := case
        when v_token is null then null
        when v_token !~ '^[0-9]{1,16}([.][0-9]{1,18})?$'
            then format('fencegate.token is %L, want a token or token.sequence, such as 34 or 34.2', left(v_token, 50))
        when split_part(v_token, '.', 1)::bigint not between 1 and 9007199254740991
            then format('fencegate.token is %L, a fencing token is a positive integer below 2^53', v_token)
        when v_lease_id !~* '^([0-9a-f]{4}-?){7}[0-9a-f]{4}$' then 'fencegate.lease_id is not a UUID'
    end;
    if problem is null then
        token := split_part(v_token, '.', 1);
        sequence := nullif(split_part(v_token, '.', 2), '');
        lease_id := case when v_token is not null then v_lease_id::uuid end;
    end if;
end
$$;
