-- fence.record_rejections(arrays) → for each, in their order: its code, how late it was, how old its token was, how often;
-- 0 times if it was not recorded, because another transaction has locked its row.
--
-- Records rejected writes, each with the number of times it was seen since the last call. The same group (resource,
-- token, code, reason, source, address, principal) is one row with a count. The owner, and how long after the end of its
-- lease the write came, are looked up here, while the lease still exists. No group repeats in a call. Watchers of the
-- resource get an event of what was recorded. lateness_ms is null if the lease had not ended; it and token_age_ms
-- (since the grant of the token) are null if the lease does not exist any more.
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
    v_event  record;
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
            select * from fence.leases l
            where l.lock = any (fence.ancestors(u.resource) || u.resource) and l.fencing_token = u.fencing_token limit 1
        ) l on true
        left join lateral (select coalesce(l.ended_at, fence.runs_until(l)) as at) ended on ended.at <= u.last_at
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

    for v_event in
        select u.*, l.owner_id, l.mode, l.scope
        from unnest(p_resources, p_keys, p_codes, p_reasons, p_tokens)
            with ordinality as u (resource, key, code, reason, token, n)
        join fence.watched w on w.lock = u.resource and w.until > clock_timestamp()
        left join lateral (
            select * from fence.leases l
            where l.lock = any (fence.ancestors(u.resource) || u.resource) and l.fencing_token = u.token limit 1
        ) l on true
        where u.n <> all (v_locked)
        order by u.resource collate "C"
    loop
        perform fence.publish_event(row(null, v_event.resource, 'rejected', null, v_event.owner_id,
            nullif(v_event.token, 0), v_event.mode,
            v_event.scope, null, nullif(v_event.reason, ''), v_event.code, nullif(v_event.key, ''), null)::fence.events);
    end loop;

    if clock_timestamp() - v_began > interval '5 seconds' then
        raise exception 'recording rejections took more than 5 s' using errcode = 'query_canceled';
    end if;
end
$$;
