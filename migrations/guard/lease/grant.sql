-- fence.grant(leases) grants leases as they are given, with their tokens, and raises the fences to these (P3): a shared
-- lease closes its fence, any other opens it. If this very transaction was admitted with an older token, it is not any
-- more. → the leases. No lock repeats.
--
-- Every grant is made here. The caller holds the fences, and has seen that nothing conflicts; fence.grant_lease changes
-- subtrees, too.
create or replace function fence.grant(p_leases fence.new_lease[]) returns setof fence.leases
language plpgsql
as $$
begin
    return query
    with granted as (
        insert into fence.leases as l (
            lock, fencing_token, lease_id, owner_id, principal, mode, scope, ttl_ms, requested_ttl_ms, session_id,
            granted_at, waited_ms, expires_at, hold_until, check_at, request_id, metadata)
        select n.lock, n.fencing_token, n.lease_id, n.owner_id, n.principal, n.mode, n.scope, n.ttl_ms, n.ttl_ms,
            n.session_id, n.granted_at, n.waited_ms, n.expires_at, n.hold_until, n.check_at, n.request_id, n.metadata
        from unnest(p_leases) n
        returning l.*
    ), raised as (
        update fence.fences f
        set granted_token = l.fencing_token, limited = l.hold_until is not null, open = l.mode = 'exclusive',
            admitted_in = null
        from granted l
        where f.resource = l.lock
    )
    select * from granted;
end
$$;
