-- fence.sweep(lease_retention, rejection_age, rejections_max, rows_max) → how much was tidied.
--
-- Ends leases that have expired, so that they are counted once, and forgets what is old: ended leases (never the newest of
-- a lock, by which a late holder is told why it lost) and rejections by age and by number. Nothing waits for a sweep: an
-- expired lease is grantable without it. Any number of gateways may sweep at once; what another one has in hand is skipped.
-- At most rows_max rows of each kind in a call: call again while a count reaches it.
create or replace function fence.sweep(
    p_lease_retention interval, p_rejection_age interval, p_rejections_max bigint, p_rows_max integer,
    out expired bigint, out leases_forgotten bigint, out rejections_forgotten bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_lease fence.leases;
begin
    expired := 0;
    for v_lease in
        with due as (
            select l.lock, l.fencing_token from fence.leases l
            where l.ended_at is null and l.expires_at <= clock_timestamp()
            limit p_rows_max for update skip locked
        ), ended as (
            update fence.leases l set ended_at = l.expires_at, end_reason = 'expired'
            from due where l.lock = due.lock and l.fencing_token = due.fencing_token
            returning l.*
        )
        select * from ended order by lock
    loop
        expired := expired + 1;
        perform fence.tell(v_lease, 'expired');
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;

    with old as (
        select l.lock, l.fencing_token from fence.leases l
        where l.ended_at < clock_timestamp() - p_lease_retention
            and l.fencing_token < (select f.granted_token from fence.fences f where f.resource = l.lock)
        limit p_rows_max for update skip locked
    ), forgotten as (
        delete from fence.leases l using old
        where l.lock = old.lock and l.fencing_token = old.fencing_token
        returning 1
    )
    select count(*) into leases_forgotten from forgotten;

    with old as (
        select r.id from fence.rejections r
        where r.id in (
            (select a.id from fence.rejections a where a.changed_at < clock_timestamp() - p_rejection_age limit p_rows_max)
            union
            (select n.id from fence.rejections n order by n.id desc offset p_rejections_max limit p_rows_max))
        limit p_rows_max for update skip locked
    ), forgotten as (
        delete from fence.rejections r using old where r.id = old.id
        returning 1
    )
    select count(*) into rejections_forgotten from forgotten;
end
$$;
