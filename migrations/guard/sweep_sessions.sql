-- fence.sweep_sessions(retention, rows_max) → how many sessions had expired and were ended, and those whose leases are still to be ended
-- (fence.settle). Forgets sessions that ended before the retention. Like fence.sweep, nothing waits for it.
create or replace function fence.sweep_sessions(
    p_retention interval, p_rows_max integer, out expired bigint, out unsettled uuid[])
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    with due as (
        select s.session_id from fence.sessions s
        where s.ended_at is null and s.expires_at <= clock_timestamp()
        limit p_rows_max for update skip locked
    ), ended as (
        update fence.sessions s set ended_at = s.expires_at, end_reason = 'expired'
        from due where s.session_id = due.session_id
        returning 1
    )
    select count(*) into expired from ended;

    delete from fence.sessions s where s.settled and s.ended_at < clock_timestamp() - p_retention;
    unsettled := array(select s.session_id from fence.sessions s where s.ended_at is not null and not s.settled limit p_rows_max);
end
$$;
