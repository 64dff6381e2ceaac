-- fence.take_rejections(rows_max) → rows of fence.rejections, those that changed first, but for those that another
-- transaction has locked. They are deleted. A gateway moves the rejections of each node to the coordinator: it commits this
-- after fence.merge_rejections there. If it ends between the two, they count twice; none is lost.
create or replace function fence.take_rejections(p_rows_max integer) returns setof text
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    with taken as materialized (
        select r.id from fence.rejections r order by r.changed_at, r.id limit p_rows_max for update skip locked
    )
    delete from fence.rejections r using taken t where r.id = t.id returning r::text
$$;

-- fence.merge_rejections(rows) adds what fence.take_rejections has taken from another node: to the row of the same group, if
-- there is one. See fence.record_rejections about the disk.
create or replace function fence.merge_rejections(p_rows text[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'local', true);
    insert into fence.rejections as r (
        resource, key, code, reason, source, address, principal, fencing_token, sequence, granted_token, last_token,
        last_sequence, owner_id, late_ms, count, first_at, last_at)
    select (m.t).resource, (m.t).key, (m.t).code, (m.t).reason, (m.t).source, (m.t).address, (m.t).principal,
        (m.t).fencing_token, (m.t).sequence, (m.t).granted_token, (m.t).last_token, (m.t).last_sequence, (m.t).owner_id,
        (m.t).late_ms, (m.t).count, (m.t).first_at, (m.t).last_at
    from (select u::fence.rejections as t from unnest(p_rows) u offset 0) m
    order by (m.t).resource collate "C", (m.t).fencing_token, (m.t).code, (m.t).reason, (m.t).source, (m.t).address,
        (m.t).principal
    on conflict (resource, fencing_token, code, reason, source, address, principal) do update
    set count = r.count + excluded.count, last_at = greatest(r.last_at, excluded.last_at),
        key = excluded.key, sequence = excluded.sequence, granted_token = excluded.granted_token,
        last_token = excluded.last_token, last_sequence = excluded.last_sequence,
        owner_id = coalesce(excluded.owner_id, r.owner_id), late_ms = coalesce(excluded.late_ms, r.late_ms),
        changed_at = clock_timestamp();
end
$$;
