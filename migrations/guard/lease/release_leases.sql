-- fence.release_leases(locks, owner_ids, lease_ids, fencing_tokens) → a row for each lease that was released: its lock,
-- mode, and age since the grant. The arrays have an element for each lease, and no lock twice. A lease that is not among
-- the rows was not decided: send it to fence.release_lease.
--
-- It decides what concerns nobody else: the lease is live, for the name alone, in no session, and nobody waits for the
-- lock. Like fence.acquire_leases, it waits for no lock of another transaction. The fences close.
create or replace function fence.release_leases(
    p_locks text[], p_owner_ids text[], p_lease_ids uuid[], p_fencing_tokens bigint[])
returns table (lock text, mode text, age_ms double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
declare
    v_locks text[] := array(select l from unnest(p_locks) l where fence.try_tree_lock(l));
begin
    perform fence.commit_durably();
    v_locks := array(
        select f.resource from fence.fences f where f.resource = any (v_locks) for update skip locked);
    v_locks := fence.plain_locks(v_locks);
    v_locks := array(
        select l.lock from unnest(p_locks, p_fencing_tokens) as r (lock, fencing_token)
        join fence.leases l on l.lock = r.lock and l.fencing_token = r.fencing_token
        where r.lock = any (v_locks)
        for update of l skip locked);

    return query
    with ended as (
        update fence.leases l set ended_at = least(clock_timestamp(), l.expires_at), end_reason = 'released'
        from unnest(p_locks, p_owner_ids, p_lease_ids, p_fencing_tokens)
            as r (lock, owner_id, lease_id, fencing_token),
            lateral ( -- offset 0: no index but the primary key serves, whatever the statistics say
                select * from fence.leases o where o.lock = r.lock and o.fencing_token = r.fencing_token
                offset 0) o
        where r.lock = any (v_locks) and (o.lease_id, o.owner_id) = (r.lease_id, r.owner_id)
            and o.ended_at is null and o.session_id is null and o.expires_at > clock_timestamp()
            and l.lock = r.lock and l.fencing_token = r.fencing_token
        returning l.lock, l.fencing_token, l.mode, l.ended_at - l.granted_at as age
    ), closed as (
        update fence.fences f set open = false
        from ended e
        where f.resource = e.lock and f.granted_token = e.fencing_token and f.open
    )
    select e.lock, e.mode, (extract(epoch from e.age) * 1000)::double precision from ended e;
    if not found then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end
$$;

-- fence.release_one(lock, owner_id, lease_id, fencing_token) is fence.release_leases for one lease, at four fifths of its
-- cost: each statement reads or changes one row by its key.
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
    where f.resource = p_lock and f.subtree_token is null and fence.try_tree_lock(p_lock) and l.fencing_token = p_fencing_token
        and (l.lease_id, l.owner_id) = (p_lease_id, p_owner_id)
        and l.end_reason is null and l.session_id is null and l.expires_at > clock_timestamp()
    for update skip locked; -- a row that was changed before it was locked is judged again
    if found
        and not fence.has_subtrees(p_lock)
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
    end if;
    perform set_config('synchronous_commit', 'off', true);
end
$$;
