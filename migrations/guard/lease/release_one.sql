-- fence.release_one(lock, owner_id, lease_id, fencing_token) is fence.release_leases for one lease, at four fifths of its
-- cost: each statement reads or changes one row by its key. Where there are subtrees, it leaves the release to that.
--
-- end_reason says that the lease runs, instead of ended_at: the indexes of running leases, which would read all readers
-- of the lock, can't serve then.
create or replace function fence.release_one(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint)
returns table (lock text, mode text, age_ms double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_setting text := fence.commit_durably();
begin
    perform from fence.fences f join fence.leases l on l.lock = f.resource
    where f.resource = p_lock and fence.try_gate(p_lock) and l.fencing_token = p_fencing_token
        and (l.lease_id, l.owner_id) = (p_lease_id, p_owner_id)
        and l.end_reason is null and l.session_id is null and l.expires_at > clock_timestamp()
    for update skip locked; -- a row that was changed before it was locked is judged again
    if found
        and not exists (select from fence.subtrees)
        and not exists (select from fence.waiters w where w.lock = p_lock)
        and not exists (select from fence.watched w where w.lock = p_lock and w.until > clock_timestamp())
    then
        update fence.leases l set ended_at = least(clock_timestamp(), l.expires_at), end_reason = 'released'
        where l.lock = p_lock and l.fencing_token = p_fencing_token
        returning l.lock, l.mode, extract(epoch from l.ended_at - l.granted_at) * 1000 into lock, mode, age_ms;
        update fence.fences f set open = false
        where f.resource = p_lock and f.granted_token = p_fencing_token and f.open;
        return next;
        return;
    elsif found and exists (select from fence.subtrees) then
        return query select * from fence.release_leases(
            array[p_lock], array[p_owner_id], array[p_lease_id], array[p_fencing_token]);
        return;
    end if;
    perform set_config('synchronous_commit', 'off', true);
end
$$;
