-- fence.sweep_leases(rows_max) → done: the number of expired leases that were ended; more. See fence.sweep.
--
-- An expired lease can be replaced without this (P7): this counts it, wakes waiters and keeps the event. It looks at a
-- lease when its check_at has passed, and again at the expires_at that it finds then: so a renewal need not change an
-- index. Leases in Redis are left to fence.settle_provided until their expires_at.
create or replace function fence.sweep_leases(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_now    timestamptz := clock_timestamp();
    v_locks  text[];
    v_tokens bigint[];
    v_lease  fence.leases;
begin
    done := 0;
    select array_agg(d.lock), array_agg(d.fencing_token) into v_locks, v_tokens
    from (
        select l.lock, l.fencing_token from fence.leases l
        where l.ended_at is null and l.check_at < 'infinity' and l.check_at <= v_now
            and (l.expires_at <= v_now or fence.lease_provider(l.lease_id) = 'postgres')
        order by l.check_at limit p_rows_max for update skip locked) d;
    more := cardinality(v_locks) = p_rows_max;

    update fence.leases l set check_at = l.expires_at
    from unnest(v_locks, v_tokens) as d (lock, token)
    where l.lock = d.lock and l.fencing_token = d.token and l.ended_at is null and l.expires_at > v_now;
    for v_lease in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token, 'expired')::fence.lease_end
            from unnest(v_locks, v_tokens) as d (lock, token)
            join fence.leases l on l.lock = d.lock and l.fencing_token = d.token
            where l.ended_at is null and l.expires_at <= v_now), p_swept => true)
    loop
        done := done + 1;
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;
end
$$;
