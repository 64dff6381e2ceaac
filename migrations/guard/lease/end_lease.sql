-- fence.end_lease(lock, owner_id, lease_id, fencing_token, gateway_id) ends a lease for its holder and closes the fence;
-- see fence.release_lease. The next in the queue is woken, unless it waits at the gateway gateway_id, which grants to it
-- itself (fence.hand_over).
create or replace function fence.end_lease(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_gateway_id uuid,
    out status text, out mode text, out age_ms double precision)
language plpgsql
as $$
declare
    v_lease fence.leases;
begin
    perform fence.lock_lease(p_lock, coalesce((
        select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    status := fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token);
    if status not in ('live', 'expired') then
        return;
    end if;
    select * into v_lease
    from fence.end_leases(array[row(p_lock, p_fencing_token, 'released')::fence.lease_end]);
    perform fence.close_fence(p_lock, p_fencing_token);
    perform fence.wake(p_lock, v_lease.scope, 0, p_gateway_id);
    status := 'released';
    mode := v_lease.mode;
    age_ms := extract(epoch from v_lease.ended_at - v_lease.granted_at) * 1000;
end
$$;
