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
