-- fence.release_lease(lock, owner_id, lease_id, fencing_token) → one row: the status of the lease after the call, which
-- is released, or why the caller could not release it; and if this call ended the lease, its mode and its age since the
-- grant. Sent twice, it succeeds twice.
--
-- An expired lease that nobody has replaced may still be released. The fence closes: none of the holder's delayed
-- writes is admitted any more. The next in the queue is woken.
create or replace function fence.release_lease(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint,
    out status text, out mode text, out age_ms double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_lease fence.leases;
begin
    perform fence.commit_durably();
    perform fence.lock_gate(p_lock, coalesce((
        select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    perform from fence.subtrees s where s.name = p_lock for update;
    perform from fence.fences f where f.resource = p_lock for update;
    status := fence.lease_status(p_lock, p_owner_id, p_lease_id, p_fencing_token);
    if status not in ('live', 'expired') then
        return;
    end if;
    update fence.leases l
    set ended_at = coalesce(l.ended_at, clock_timestamp()), end_reason = 'released'
    where l.lock = p_lock and l.fencing_token = p_fencing_token
    returning l.* into v_lease;
    perform fence.close_fence(p_lock, p_fencing_token);
    perform fence.publish_lease_event(v_lease, 'released');
    perform fence.wake(p_lock, v_lease.scope, 0);
    status := 'released';
    mode := v_lease.mode;
    age_ms := extract(epoch from v_lease.ended_at - v_lease.granted_at) * 1000;
end
$$;
