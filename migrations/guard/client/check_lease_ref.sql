-- fence.check_lease_ref(lock, owner_id, lease_id, fencing_token) checks the form of what identifies a lease. Raises as
-- fence.check_lease_call.
create or replace function fence.check_lease_ref(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns void
language plpgsql
as $$
begin
    perform fence.check_lease_call(p_lock, p_owner_id);
    perform fence.require(p_lease_id is not null, 'lease_id is null');
    perform fence.require(p_fencing_token between 1 and 9007199254740991,
        format('fencing_token is %L, it must be 1 to 2^53-1', p_fencing_token));
end
$$;
