-- fence.record_rejections(arrays) → for each, in their order: its code, how late it was, how old its token was, how often;
-- 0 times if it was not recorded, because another transaction has locked its row.
--
-- Records rejected writes, each with the number of times it was seen since the last call. The same group (resource,
-- token, code, reason, source, address, principal) is one row with a count. The owner, and how long after the end of its
-- lease the write came, are looked up here, while the lease still exists. No group repeats in a call. lateness_ms is
-- null if the lease had not ended; it and token_age_ms (since the grant of the token) are null if the lease does not
-- exist any more.
--
-- SQLSTATE 57014 if it takes more than 5 s. Invariant: what becomes visible has a changed_at of the last few seconds,
-- so a reader that follows the changes by it, looking back 10 s, misses none. For the same reason the commit does not
-- wait for standbys.
create or replace function fence.record_rejections(
    p_resources text[], p_keys text[], p_codes text[], p_reasons text[], p_sources text[], p_addresses text[],
    p_tokens bigint[], p_sequences bigint[],
    p_granted_tokens bigint[], p_last_tokens bigint[], p_last_sequences bigint[],
    p_counts bigint[], p_first_at timestamptz[], p_last_at timestamptz[], p_principals text[] default null)
returns table (rejected_code text, lateness_ms bigint, token_age_ms bigint, writes bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_began  timestamptz := clock_timestamp();
    v_locked bigint[];
begin
    if current_setting('synchronous_commit') <> 'off' then
        perform set_config('synchronous_commit', 'local', true);
    end if;

    with known as materialized (
        select g.n, r.id
        from unnest(p_resources, p_codes, p_reasons, p_sources, p_addresses, p_tokens, p_principals)
            with ordinality as g (resource, code, reason, source, address, fencing_token, principal, n)
        join fence.rejections r
            on (r.resource, r.fencing_token, r.code, r.reason, r.source, r.address, r.principal)
                = (g.resource, g.fencing_token, g.code, g.reason, g.source, g.address, coalesce(g.principal, ''))
    ), free as materialized (
        select r.id from known k join fence.rejections r on r.id = k.id for update of r skip locked
    )
    select array_agg(k.n) into v_locked from known k where k.id not in (select f.id from free f);
    v_locked := coalesce(v_locked, '{}');

    return query
    with found as materialized (
        select u.*, l.owner_id, (extract(epoch from u.last_at - ended.at) * 1000)::bigint as late_ms,
            greatest(0, (extract(epoch from u.last_at - l.granted_at) * 1000)::bigint) as age_ms,
            u.n = any (v_locked) as locked
        from unnest(p_resources, p_keys, p_codes, p_reasons, p_sources, p_addresses, p_tokens, p_sequences,
                p_granted_tokens, p_last_tokens, p_last_sequences, p_counts, p_first_at, p_last_at, p_principals)
            with ordinality as u (resource, key, code, reason, source, address, fencing_token, sequence, granted_token,
                last_token, last_sequence, count, first_at, last_at, principal, n)
        left join lateral (
            select * from fence.leases_of(u.resource, u.fencing_token)
        ) l on true
        left join lateral (select coalesce(l.ended_at, l.expires_at) as at) ended on ended.at <= u.last_at
    ), recorded as (
        insert into fence.rejections as r (
            resource, key, code, reason, source, address, fencing_token, sequence, granted_token, last_token,
            last_sequence,
            count, first_at, last_at, owner_id, late_ms, principal)
        select f.resource, f.key, f.code, f.reason, f.source, f.address, f.fencing_token, f.sequence, f.granted_token,
            f.last_token,
            f.last_sequence, f.count, f.first_at, f.last_at, f.owner_id, f.late_ms, coalesce(f.principal, '')
        from found f
        where not f.locked
        order by f.resource collate "C", f.fencing_token, f.code, f.reason, f.source, f.address, f.principal
        on conflict (resource, fencing_token, code, reason, source, address, principal) do update
        set count = r.count + excluded.count, last_at = excluded.last_at,
            key = excluded.key, sequence = excluded.sequence, granted_token = excluded.granted_token,
            last_token = excluded.last_token, last_sequence = excluded.last_sequence,
            owner_id = coalesce(excluded.owner_id, r.owner_id), late_ms = coalesce(excluded.late_ms, r.late_ms),
            changed_at = clock_timestamp()
    )
    select f.code, f.late_ms, f.age_ms, case when f.locked then 0 else f.count end from found f order by f.n;

    if clock_timestamp() - v_began > interval '5 seconds' then
        raise exception 'recording rejections took more than 5 s' using errcode = 'query_canceled';
    end if;
end
$$;

-- fence.read_slots(ahead) moves what is new in fence.rejected_slots to fence.reported. It finds the name of a fence in its
-- block, where it still is unless an update had no place there. A slot whose hash fits no name and role was being written,
-- or is spoiled: it is read once more, at the next call.
--
-- The numbers of the fence are those of now. ahead is how many that nextval has counted may never have come
-- (fence.sweep_reported); the first of a group was set by setval, which is exact.
create or replace function fence.read_slots(p_ahead integer) returns void
language plpgsql
as $$
declare
    v_slot  record;
    v_block bigint;
    v_count bigint;
begin
    for v_slot in
        select s.slot, s.missed, now.key, now.cause, now.place, now.first, now.last, case
            when now.key between s.read and (s.read | 1048575) then s.read
            else now.key >> 20 << 20 end as read -- another group, or one that came back
        from fence.rejected_slots s
        cross join lateral (
            select pg_sequence_last_value(s.key) as key, pg_sequence_last_value(s.cause) as cause,
                pg_sequence_last_value(s.place) as place,
                to_timestamp(pg_sequence_last_value(s.first) / 1e6) as first,
                to_timestamp(pg_sequence_last_value(s.last) / 1e6) as last
            offset 0
        ) now
        where now.key <> s.read
    loop
        v_block := v_slot.place >> 31;
        v_count := v_slot.key - v_slot.read;
        v_count := v_count - least(p_ahead, v_count - (v_slot.read & 1048575 = 0)::integer);
        insert into fence.reported (
            first_at, last_at, resource, table_name, code, reason, address, principal, fencing_token, granted_token,
            last_token, last_sequence, count)
        select v_slot.first, v_slot.last, named.name, coalesce(p.table_name, ''), split_part(cause.said, '/', 1),
            split_part(cause.said, '/', 2), '',
            'sql:' || r.rolname, v_slot.cause >> 10, named.granted_token, named.last_token, named.last_sequence,
            v_count
        from (
            select p.id, p.template, fence.name_of_table(p.table_id) as table_name
            from fence.protected_tables p where p.id = v_slot.place & 2147483647
            union all
            select 0, null, '' where v_slot.place & 2147483647 = 0
        ) p
        cross join lateral (
            select f.resource::text as name, f.granted_token, f.last_token, f.last_sequence
            from fence.fences f
            where v_block < 4294967295 and f.ctid >= format('(%s,0)', v_block)::tid
                and f.ctid < format('(%s,0)', v_block + 1)::tid
            union all
            select p.template, 0, 0, 0 where v_block = 4294967295 and p.template is not null
        ) named
        join pg_roles r on r.oid::bigint & 63 = v_slot.cause & 63
        cross join lateral (select (fence.causes())[v_slot.cause >> 6 & 15] as said) cause
        where v_count > 0 and fence.slot_key(named.name, v_slot.cause, p.id, r.oid) = v_slot.key >> 20 << 20
        limit 1;
        if found or v_count = 0 or v_slot.missed = v_slot.key then
            update fence.rejected_slots s set read = v_slot.key where s.slot = v_slot.slot;
        else
            update fence.rejected_slots s set missed = v_slot.key where s.slot = v_slot.slot;
        end if;
    end loop;
end
$$;

-- fence.sweep_reported(rows_max) → done: the number of rejections by SQL that were moved to fence.rejections; more. See
-- fence.sweep. It reads those of rolled back transactions first (fence.read_slots). Those whose row in fence.rejections
-- is locked stay. It also adds up how many there were, by cause.
--
-- PostgreSQL writes the value of a sequence to its log once for 32 calls of nextval. So after a crash, or the promotion of
-- a standby, a sequence may be 32 ahead. Then as many of those since the last sweep do not count: rather too few are shown
-- than some that never came. What tells a crash is that its recovery sets the statistics back, also if the postmaster goes on.
create or replace function fence.sweep_reported(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_reset timestamptz := (select a.stats_reset from pg_stat_archiver a);
    v_ahead integer := case
        when v_reset is distinct from (select s.stats_reset from fence.sweeps s where s.part = 'reported') then 32
        else 0 end;
begin
    update fence.rejected_by_sql c
    set rejections = c.rejections + greatest(now.value - c.read - v_ahead, 0), read = now.value
    from (select r.counter, pg_sequence_last_value(r.counter) as value from fence.rejected_by_sql r) now
    where now.counter = c.counter and now.value <> c.read;
    perform fence.read_slots(v_ahead);
    with taken as materialized (
        select r as rejection from fence.reported r order by r.id limit p_rows_max for update skip locked
    ), groups as materialized (
        select row_number() over () as n, array_agg((t.rejection).id) as ids, sum((t.rejection).count)::bigint as count,
            min((t.rejection).first_at) as first_at, max((t.rejection).last_at) as last_at,
            (array_agg(t.rejection order by (t.rejection).id desc))[1] as newest
        from taken t
        group by (t.rejection).resource, (t.rejection).fencing_token, (t.rejection).code, (t.rejection).reason,
            (t.rejection).address, (t.rejection).principal
    ), moved as (
        select array_agg((g.newest).resource) as resources, array_agg((g.newest).table_name) as keys,
            array_agg((g.newest).code) as codes, array_agg((g.newest).reason) as reasons,
            array_agg('sql'::text) as sources, array_agg((g.newest).address) as addresses,
            array_agg((g.newest).fencing_token) as tokens, array_agg((g.newest).sequence) as sequences,
            array_agg((g.newest).granted_token) as granted_tokens, array_agg((g.newest).last_token) as last_tokens,
            array_agg((g.newest).last_sequence) as last_sequences, array_agg(g.count) as counts,
            array_agg(g.first_at) as first_at, array_agg(g.last_at) as last_at,
            array_agg((g.newest).principal) as principals
        from (select * from groups order by n) g
    ), recorded as materialized (
        select r.writes, r.n
        from moved m, fence.record_rejections(m.resources, m.keys, m.codes, m.reasons, m.sources, m.addresses, m.tokens,
            m.sequences, m.granted_tokens, m.last_tokens, m.last_sequences, m.counts, m.first_at, m.last_at,
            m.principals) with ordinality as r (code, late_ms, age_ms, writes, n)
    ), deleted as (
        delete from fence.reported o using groups g, recorded r
        where r.n = g.n and r.writes > 0 and o.id = any (g.ids)
        returning o.count
    )
    select coalesce(sum(d.count), 0), count(*) = p_rows_max into done, more from deleted d;
    update fence.sweeps s set counted = s.counted + done, stats_reset = v_reset
    where s.part = 'reported' and (done > 0 or s.stats_reset is distinct from v_reset);
end
$$;

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
