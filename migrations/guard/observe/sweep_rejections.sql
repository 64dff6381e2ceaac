-- fence.sweep_rejections(rows_max, age, count_max) → done: the number of rejections deleted, by age and by number; more.
-- See fence.sweep.
--
-- It counts them all only once there can be a hundredth more than count_max: since the last count, at most as many were
-- added as ids were given.
create or replace function fence.sweep_rejections(
    p_rows_max integer, p_age interval, p_count_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before  timestamptz := clock_timestamp() - p_age;
    v_newest  bigint;
    v_count   bigint;
    v_deleted bigint := 0;
begin
    with old as (
        select r.id from fence.rejections r where r.changed_at < v_before
        order by r.changed_at, r.id limit p_rows_max for update skip locked
    )
    delete from fence.rejections r using old where r.id = old.id;
    get diagnostics done = row_count;

    v_newest := coalesce((select max(r.id) from fence.rejections r), 0);
    perform from fence.sweeps s
    where s.part = 'rejections' and s.counted + v_newest - s.counted_through > p_count_max + p_count_max / 100;
    if found then
        v_count := (select count(*) from fence.rejections);
        with old as (
            select r.id from fence.rejections r
            order by r.id limit greatest(least(v_count - p_count_max, p_rows_max), 0) for update skip locked
        )
        delete from fence.rejections r using old where r.id = old.id;
        get diagnostics v_deleted = row_count;
        update fence.sweeps s set counted = v_count - v_deleted, counted_through = v_newest where s.part = 'rejections';
    end if;
    more := greatest(done, v_deleted) = p_rows_max;
    done := done + v_deleted;
end
$$;
