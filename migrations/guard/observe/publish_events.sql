-- fence.publish_events(locks, rows_max) gives the committed events of these watched locks their ids, at most rows_max of
-- each lock. → the locks to publish again: another caller publishes their events now, or there are more.
--
-- Invariant: events of one lock become visible in the order of their ids, so a reader that has seen one has seen all
-- before it. One caller at a time publishes those of a lock, in a transaction that waits for nothing. It takes all that
-- its snapshot shows, in the order in which they were inserted: a transaction that waited for another, on the fence or
-- on the lease, inserted its events later, and no snapshot shows them without those of the other. A transaction that is
-- open delays only its own events. The caller commits at once.
create or replace function fence.publish_events(p_locks text[], p_rows_max integer) returns text[]
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
declare
    v_due    text[];
    v_locked text[];
    v_more   text[];
begin
    perform set_config('synchronous_commit', 'off', true);
    v_due := array(
        select w.lock from fence.watched w
        where w.lock = any (p_locks) and exists (select from fence.unpublished_events(w.lock)));
    v_locked := array(select w.lock from fence.watched w where w.lock = any (v_due) for update skip locked);

    with found as materialized (
        select n.lock, n.xid, n.id, n.event, n.id = max(n.id) over (partition by n.lock) as last,
            count(*) over (partition by n.lock) = p_rows_max as more
        from unnest(v_locked) as l (lock)
        cross join lateral (select * from fence.unpublished_events(l.lock) u order by u.id limit p_rows_max) n
    ), published as (
        delete from fence.unpublished u using found f where (u.lock, u.xid, u.id) = (f.lock, f.xid, f.id)
    ), kept as (
        insert into fence.events (lock, kind, at, owner_id, fencing_token, mode, scope, expires_at, reason, code, key,
            snapshot)
        select (f.event).lock, (f.event).kind, (f.event).at, (f.event).owner_id, (f.event).fencing_token,
            (f.event).mode, (f.event).scope, (f.event).expires_at, (f.event).reason, (f.event).code, (f.event).key,
            case when f.last and not f.more then pg_current_snapshot() end
        from found f order by f.id
    )
    select array_agg(f.lock) into v_more from found f where f.last and f.more;
    return array(select d from unnest(v_due) d where d <> all (v_locked)) || v_more;
end
$$;
