-- fence.recount() → whether it counted. If a count is due, it counts what the database holds, into fence.inventory.
--
-- Any number of gateways may call it; one counts, and the others return at once. The next count is due in 2 s (less
-- what a timer may come early), or after twenty times the duration of this one: counting takes at most a twentieth of
-- the time.
--
-- Idle locks cost it nothing: it reads running leases and waiters, and at most 10,000 of the rest, above which it
-- estimates (fence.table_rows). Each count reads the same ones, from the cache: a synchronized scan would begin where the
-- last one ended.
--
-- locks     those that were granted or have waiters; above 10,000 an estimate
-- held      leases that run
-- expiring  those of them that have less than a quarter of their TTL left, or of their session's
-- expired   locks whose holder is late and that nobody has replaced: the fence is open, and its lease, the newest, has
--           expired. If sweeps ended 10,000 leases or more, an estimate by the fences of 500 of them
-- overdue_ms  how long ago the lease expired that has waited longest for a sweep to end it, also one of a session
-- waiting   waiters that count (fence.live_waiters)
-- stuck_ms  how long the first waiter of a queue could have been granted its lock and was not (fence.grantable_queues);
--           of all queues the longest
--
-- sessions  those that are live
-- leases_of the running leases and live sessions of each principal that has many
--
-- fence.check_tables counts the protected tables. The commit waits for neither the disk nor standbys.
create or replace function fence.recount() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = on set synchronize_seqscans = off
as $$
declare
    v_begun   timestamptz;
    v_locks   bigint;
    v_ended   bigint; -- leases that a sweep ended, of which
    v_late    bigint; -- those whose fence is open
    c_counted constant bigint := 10000;
    c_sampled constant bigint := 500; -- of leases that a sweep ended, where there are more than are counted
    c_many    constant bigint := 1000; -- leases and sessions of a principal that is listed, so that the list is short
begin
    perform set_config('synchronous_commit', 'off', true);
    perform from fence.inventory c where c.due_at <= clock_timestamp() for update skip locked;
    if not found then
        return false;
    end if;
    v_begun := clock_timestamp();
    v_locks := (select count(*) from (select from fence.fences f where f.granted_token > 0 limit c_counted) counted);
    if v_locks = c_counted then
        v_locks := greatest(c_counted, fence.table_rows('fence.fences'));
    end if;
    -- Of the leases, read only those in a partial index, whatever the statistics say.
    perform set_config('enable_seqscan', 'off', true);
    v_ended := (
        select count(*) from (select from fence.leases l where l.end_reason = 'expired' limit c_counted) counted);
    select count(*) into v_late
    from (
        select l.lock, l.fencing_token from fence.leases l where l.end_reason = 'expired'
        limit case when v_ended < c_counted then c_counted else c_sampled end) l
    join fence.fences f on f.resource = l.lock and f.granted_token = l.fencing_token and f.open;
    if v_ended = c_counted then
        v_late := v_late * greatest(c_counted, fence.table_rows('fence.leases_expired')) / c_sampled;
    end if;

    update fence.inventory c set grantable = fence.grantable_queues(c.grantable);
    with unended as materialized (
        select l.lock, l.fencing_token, l.principal, l.granted_at, l.ttl_ms * interval '1 millisecond' as ttl,
            l.expires_at as until
        from fence.leases l
        where l.ended_at is null
    ), sessions as materialized (
        select s.principal from fence.sessions s
        where not s.settled and s.ended_at is null and s.expires_at > v_begun
    ), leases as (
        select count(*) filter (where u.until > v_begun) as held,
            count(*) filter (where u.until > v_begun and u.until < v_begun + u.ttl / 4) as expiring,
            max(u.fencing_token) as newest,
            max(v_begun - greatest(u.until, u.granted_at)) filter (where u.until <= v_begun) as overdue -- not since ever
        from unended u
    ), of_principals as (
        select coalesce(jsonb_object_agg(p.principal, p.held), '{}') as leases
        from (
            select u.principal, count(*) as held
            from (
                select u.principal from unended u where u.until > v_begun
                union all
                select s.principal from sessions s) u
            where u.principal <> ''
            group by u.principal
            having count(*) >= c_many
        ) p
    ), late as (
        select count(*) as expired
        from unended u
        join fence.fences f on f.resource = u.lock and f.granted_token = u.fencing_token and f.open
        where u.until <= v_begun
    ), queue as (
        select count(*) as waiting, min(w.queued_at) as since,
            count(distinct w.lock) filter (where f.granted_token = 0) as ungranted
        from fence.live_waiters() w
        left join fence.fences f on f.resource = w.lock
    )
    update fence.inventory c
    set at = v_begun, locks = v_locks + queue.ungranted, held = leases.held, expiring = leases.expiring,
        expired = v_late + late.expired, waiting = queue.waiting,
        overdue_ms = coalesce(greatest(extract(epoch from leases.overdue) * 1000, 0), 0),
        oldest_wait_ms = coalesce(greatest(extract(epoch from v_begun - queue.since) * 1000, 0), 0),
        stuck_ms = (
            select greatest(extract(epoch from v_begun - min((q ->> 'since')::timestamptz)) * 1000, 0)
            from jsonb_array_elements(c.grantable) q),
        sessions = (select count(*) from sessions),
        leases_of = of_principals.leases,
        newest_token = greatest(c.newest_token, leases.newest, (
            select case when t.is_called then t.last_value else 0 end from fence.tokens t))
    from leases, of_principals, late, queue;
    update fence.inventory c
    set took_ms = extract(epoch from clock_timestamp() - v_begun) * 1000,
        due_at = v_begun + greatest(interval '1900 milliseconds', 20 * (clock_timestamp() - v_begun));
    return true;
end
$$;

-- fence.postpone_recount(pause): the next count (fence.recount) is due after the pause at the earliest. The commit does
-- not wait for the disk.
create or replace function fence.postpone_recount(p_pause interval) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update fence.inventory i set due_at = greatest(i.due_at, clock_timestamp() + p_pause);
end
$$;

-- fence.table_rows(name) → an estimate of the number of rows of a table or an index, as the planner makes it: as dense
-- as when it was last vacuumed or analyzed, and as large as it is now. 0 if it never was.
create or replace function fence.table_rows(p_name regclass) returns bigint
language sql
as $$
    select case when c.reltuples > 0 and c.relpages > 0
        then (c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::integer))::bigint
        else 0 end
    from pg_class c where c.oid = p_name
$$;
