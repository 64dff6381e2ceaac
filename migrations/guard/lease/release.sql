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
begin
    perform fence.commit_durably();
    select e.status, e.mode, e.age_ms into status, mode, age_ms
    from fence.end_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token, null) e;
end
$$;

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

-- fence.give_back(lock, owner_id, lease_id, fencing_token) releases a lease whose client was gone when it was granted,
-- and deletes its request_id, so that the request sent again is a new one. → the status of fence.release_lease; or
-- adopted, and nothing is changed: the request was sent again before, through another gateway, and that client has the
-- lease.
create or replace function fence.give_back(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_status text;
begin
    perform fence.take_tree_lock(p_lock, coalesce((
        select l.scope from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token), 'node'));
    perform fence.lock_fence(p_lock);
    if exists (select from fence.leases l where l.lock = p_lock and l.fencing_token = p_fencing_token
        and l.adopted) then
        return 'adopted';
    end if;
    v_status := (select r.status from fence.release_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token) r);
    if v_status = 'released' then
        update fence.leases l set request_id = null where l.lock = p_lock and l.fencing_token = p_fencing_token;
    end if;
    return v_status;
end
$$;
