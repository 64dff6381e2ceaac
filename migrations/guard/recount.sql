-- fence.recount() → whether it counted: what there is in the database, into fence.census, if that is due.
--
-- Any number of gateways may call it; one counts, and the others go on at once. The next count is due in 2 s (less what a timer may come
-- early), or when twenty times as long as this one took has passed: counting takes at most a twentieth of the time.
--
-- held      leases that run. One in a session runs as long as that, as fence.runs_until says; here without a call for each
-- expiring  of those the ones that have less than a quarter of their TTL left, or of their session's
-- expired   locks whose holder is late, and whom nobody has replaced: the fence is open, and no lease runs
create or replace function fence.recount() returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_begun timestamptz;
begin
    perform from fence.census c where c.due_at <= clock_timestamp() for update skip locked;
    if not found then
        return false;
    end if;
    v_begun := clock_timestamp();
    with running as materialized (
        select l.lock, least(s.ended_at, coalesce(s.expires_at, l.expires_at), l.hold_until) - v_begun as remains,
            coalesce(s.ttl_ms, l.ttl_ms) * interval '1 millisecond' as ttl
        from fence.leases l
        left join fence.sessions s on s.session_id = l.session_id
        where l.ended_at is null and (l.session_id is null or s.session_id is not null)
            and least(s.ended_at, coalesce(s.expires_at, l.expires_at), l.hold_until) > v_begun
    ), leases as (
        select count(*) as held, count(*) filter (where r.remains < r.ttl / 4) as expiring from running r
    ), fences as (
        select count(*) filter (where f.granted_token > 0) as granted, max(f.granted_token) as newest,
            count(*) filter (where f.open and f.granted_token > 0 and r.lock is null) as expired
        from fence.fences f
        left join (select distinct lock from running) r on r.lock = f.resource
    ), line as (
        select count(*) as waiting, min(w.queued_at) as since, count(distinct w.lock) filter (where f.granted_token = 0) as ungranted
        from fence.waiters w
        left join fence.fences f on f.resource = w.lock
        where fence.waits(w)
    )
    update fence.census c
    set at = v_begun, locks = fences.granted + line.ungranted, held = leases.held, expiring = leases.expiring, expired = fences.expired,
        waiting = line.waiting, oldest_wait_ms = coalesce(greatest(extract(epoch from v_begun - line.since) * 1000, 0), 0),
        sessions = (select count(*) from fence.sessions s where s.ended_at is null and s.expires_at > v_begun),
        newest_token = greatest(fences.newest, (select case when t.is_called then t.last_value else 0 end from fence.tokens t))
    from leases, fences, line;
    update fence.census c
    set took_ms = extract(epoch from clock_timestamp() - v_begun) * 1000,
        due_at = v_begun + greatest(interval '1900 milliseconds', 20 * (clock_timestamp() - v_begun));
    return true;
end
$$;
