-- fence.settle_provided(locks, tokens, lefts_ms) notes how long leases in Redis still run, as a gateway has just seen
-- there. Leases with 0 have ended: it expires them. The others are due for the next check when they would end, but not
-- before 30 s, so frequent renewals cost PostgreSQL nothing. It lists them until a minute after that check. Leases that
-- another transaction has locked are skipped, and stay due.
create or replace function fence.settle_provided(p_locks text[], p_tokens bigint[], p_lefts_ms bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_now   timestamptz;
    v_lease fence.leases;
begin
    perform set_config('synchronous_commit', 'off', true);
    select array_agg(f.lock), array_agg(f.token), array_agg(f.left_ms) into p_locks, p_tokens, p_lefts_ms
    from (
        select s.* from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
        join fence.leases l on l.lock = s.lock and l.fencing_token = s.token
        where l.ended_at is null for update of l skip locked) f;
    v_now := clock_timestamp();
    update fence.leases l
    set check_at = v_now + greatest(s.left_ms, 30000) * interval '1 millisecond',
        expires_at = least(v_now + (greatest(s.left_ms, 30000) + 60000) * interval '1 millisecond', l.hold_until)
    from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
    where l.lock = s.lock and l.fencing_token = s.token and l.ended_at is null and s.left_ms > 0;
    for v_lease in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token,
                case when l.hold_until <= v_now then 'max_hold' else 'expired' end)::fence.lease_end
            from unnest(p_locks, p_tokens, p_lefts_ms) as s (lock, token, left_ms)
            join fence.leases l on l.lock = s.lock and l.fencing_token = s.token
            where l.ended_at is null and s.left_ms <= 0))
    loop
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;
end
$$;
