-- fence.sweep_sessions(rows_max, retention) → done: the number of expired sessions that were ended; more; unsettled:
-- those whose leases must be ended now (fence.settle_leases), the longest overdue first. Deletes sessions that were
-- settled before the retention. See fence.sweep, and fence.sweep_leases about check_at.
create or replace function fence.sweep_sessions(
    p_rows_max integer, p_retention interval, out done bigint, out more boolean, out unsettled uuid[])
language plpgsql
as $$
declare
    v_now    timestamptz := clock_timestamp();
    v_before timestamptz := v_now - p_retention;
    v_due    uuid[];
    v_old    bigint;
begin
    v_due := array(
        select s.session_id from fence.sessions s
        where not s.settled and s.check_at <= v_now
        order by s.check_at limit p_rows_max for update skip locked);
    update fence.sessions s set check_at = s.expires_at
    where s.session_id = any (v_due) and s.ended_at is null and s.expires_at > v_now;
    update fence.sessions s set ended_at = s.expires_at, end_reason = 'expired'
    where s.session_id = any (v_due) and s.ended_at is null and s.expires_at <= v_now;
    get diagnostics done = row_count;
    unsettled := array(
        select s.session_id from fence.sessions s where s.session_id = any (v_due) and s.ended_at is not null
        order by s.check_at);

    with old as (
        select s.session_id from fence.sessions s
        where s.settled and s.ended_at < v_before order by s.ended_at limit p_rows_max for update skip locked
    )
    delete from fence.sessions s using old where s.session_id = old.session_id;
    get diagnostics v_old = row_count;
    more := p_rows_max in (cardinality(v_due), v_old);
end
$$;
