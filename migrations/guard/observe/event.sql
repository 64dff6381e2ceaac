-- fence.publish_lease_event(lease, kind, reason) publishes an event of a lease if the lock is watched
-- (fence.publish_event); otherwise it costs one look-up.
create or replace function fence.publish_lease_event(
    p_lease fence.leases, p_kind text, p_reason text default null)
returns void
language plpgsql
as $$
begin
    if exists (select from fence.watched w where w.lock = p_lease.lock and w.until > clock_timestamp()) then
        perform fence.publish_event(row(
            null, p_lease.lock, p_kind, null, p_lease.owner_id, p_lease.fencing_token, p_lease.mode, p_lease.scope,
            case when p_kind in ('granted', 'renewed') and p_lease.session_id is null then p_lease.expires_at end,
            p_reason, null, null, null)::fence.events);
    end if;
end
$$;

-- fence.publish_event(event) keeps an event of a watched lock, with the time, and notifies the gateways, which publish
-- it after the commit (fence.publish_events). The payload names the lock to those that watch it: every role can listen
-- (P15). It waits for nothing.
create or replace function fence.publish_event(p_event fence.events) returns void
language plpgsql
as $$
begin
    p_event.at := clock_timestamp();
    insert into fence.unpublished (lock, event) values (p_event.lock, p_event);
    perform pg_notify('fence_events', w.key::text) from fence.watched w where w.lock = p_event.lock;
end
$$;

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

-- fence.unpublished_events(lock) → the committed events of the lock that are not published yet.
--
-- It reads no row that was published before, also where an old snapshot keeps the deleted rows: an event is not
-- published if its transaction was still running, or had not begun, in the snapshot of the newest event. A snapshot that
-- is ahead of this server's transactions came with a dump, and is ignored.
create or replace function fence.unpublished_events(p_lock text) returns setof fence.unpublished
language sql stable
as $$
    with newest as materialized (
        select case when pg_snapshot_xmax(e.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()) then e.snapshot end
            as snapshot
        from ( -- ordered so that no index but that on (lock, id) serves, whatever the statistics say
            select o.lock, o.snapshot from fence.events o where (o.lock, o.id) <= (p_lock, 9223372036854775807)
            order by o.lock desc, o.id desc limit 1
        ) e
        where e.lock = p_lock
    )
    select u.* from fence.unpublished u
    where u.lock = p_lock and u.xid >= coalesce((select pg_snapshot_xmax(n.snapshot) from newest n), '0')
    union all
    select u.* from newest n, pg_snapshot_xip(n.snapshot) as running (xid),
        lateral (select * from fence.unpublished o where o.lock = p_lock and o.xid = running.xid offset 0) u
$$;

-- fence.begin_watch(locks, lasts_ms) has the events of these locks kept from now on, for so long: call it again before
-- that. Events are complete after the id since; if the watch had lapsed, that is now.
--
-- A transaction that was under way when this committed may not have seen it. It has ended once the fence is locked
-- (fence.watch_state).
create or replace function fence.begin_watch(p_locks text[], p_lasts_ms integer) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
    select set_config('synchronous_commit', 'off', true);
    insert into fence.watched as w (lock, until)
    select l.lock, clock_timestamp() + p_lasts_ms * interval '1 millisecond'
    from unnest(p_locks) as l (lock)
    order by l.lock collate "C"
    on conflict (lock) do update
    set until = greatest(w.until, excluded.until),
        since = case when w.until > clock_timestamp() then w.since else excluded.since end
$$;

-- fence.watch_state(lock) → since, after which the events of the watched lock are complete; newest, after which its
-- next event will come; key, by which it is notified of events (fence.publish_event). All are null if it is not watched. Read the lock after this, in the same transaction: while its
-- fence is locked no grant, release or break comes between the two. Those before are published here. The caller commits
-- at once.
create or replace function fence.watch_state(p_lock text, out since bigint, out newest bigint, out key uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences := fence.lock_fence(p_lock);
begin
    if greatest(v_fence.granted_token, v_fence.last_token) = 0 then
        perform fence.note_unused(array[p_lock]);
    end if;
    perform from fence.watched w where w.lock = p_lock for update; -- of gateways that publish at this moment
    while cardinality(fence.publish_events(array[p_lock], 5000)) > 0 loop
    end loop;
    select w.since, greatest(w.since, (select max(e.id) from fence.events e where e.lock = p_lock)), w.key
    into since, newest, key
    from fence.watched w where w.lock = p_lock and w.until > clock_timestamp();
end
$$;

-- fence.sweep_events(rows_max, age, count_max) → done: the number of events deleted, by age and by number; more. No
-- watch resumes from before them. See fence.sweep.
--
-- Reads from the oldest event on, and no further than the first that stays.
create or replace function fence.sweep_events(
    p_rows_max integer, p_age interval, p_count_max bigint, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_age;
    v_newest bigint;
    v_from   bigint;
    v_locks  text[];
    v_ids    bigint[];
begin
    v_newest := (select max(e.id) from fence.events e);
    v_from := greatest(
        v_newest - p_count_max + 1,
        coalesce((
            select o.id from (select e.id, e.at from fence.events e order by e.id limit p_rows_max) o
            where o.at >= v_before order by o.id limit 1), v_newest + 1));
    with old as (
        select e.id from fence.events e where e.id < v_from order by e.id limit p_rows_max for update skip locked
    ), deleted as (
        delete from fence.events e using old where e.id = old.id returning e.lock, e.id
    ), newest as (
        select d.lock, max(d.id) as id, count(*) as deleted from deleted d group by d.lock
    )
    select array_agg(n.lock order by n.lock collate "C"), array_agg(n.id order by n.lock collate "C"),
        coalesce(sum(n.deleted), 0)
    into v_locks, v_ids, done from newest n;
    more := done = p_rows_max;
    perform from fence.watched w where w.lock = any (v_locks) order by w.lock for update;
    update fence.watched w set since = greatest(w.since, f.id)
    from unnest(v_locks, v_ids) as f (lock, id)
    where w.lock = f.lock;
end
$$;
