-- fence.check_outcome(outcome) raises 22023 for an outcome of fence.acquire_lease that is the caller's mistake.
create or replace function fence.check_outcome(p_outcome text) returns void
language plpgsql
as $$
begin
    perform fence.require(p_outcome <> 'owner_refused', format(
        'the policy demands an owner_id that is %1$s, or begins with %1$s/', 'sql:' || session_user));
    perform fence.require(p_outcome <> 'request_id_reused', 'request_id was used on this lock by another owner');
    perform fence.require(p_outcome <> 'request_id_changed',
        'request_id was used on this lock with another mode, scope, ttl_ms or metadata');
end
$$;
