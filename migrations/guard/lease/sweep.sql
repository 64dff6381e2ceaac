-- fence.sweep_leases(rows_max) → done: the number of expired leases that were ended; more. See fence.sweep.
--
-- An expired lease can be replaced without this (P7): this counts it, wakes waiters and notifies of it. It looks at a
-- lease when its check_at has passed, and again at the expires_at that it finds then: so a renewal need not change an
-- index. Leases in Redis are left to fence.note_ends_elsewhere until their expires_at, and those of a session that is over
-- to fence.settle_leases, which closes their fences.
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
            and (l.session_id is null or exists (
                select from fence.sessions s where s.session_id = l.session_id and fence.session_is_live(s)))
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

-- fence.sweep_ended(rows_max, retention) → done: the number of leases deleted that ended before the retention; more. See
-- fence.sweep.
--
-- The newest lease of a lock stays, so that a late holder can be given the reason for its loss. It is marked as kept, and
-- its request_id is forgotten, which takes it out of the indexes of both. Once it is not the newest any more, it is deleted
-- with the first after it that is old enough, or kept instead: grants need not know of it. The fence is locked, and skipped
-- where it is, so that this and fence.sweep_claims never wait for each other.
create or replace function fence.sweep_ended(
    p_rows_max integer, p_retention interval, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_retention;
    v_locks  text[];
    v_tokens bigint[];
    v_fences text[];
    v_kept   bigint;
begin
    select array_agg(d.lock), array_agg(d.fencing_token) into v_locks, v_tokens
    from (
        select l.lock, l.fencing_token from fence.leases l
        where l.ended_at is not null and not l.kept and l.ended_at < v_before
        order by l.ended_at limit p_rows_max for update skip locked) d;
    if v_locks is null then
        return;
    end if;

    delete from fence.leases l
    using unnest(v_locks, v_tokens) as d (lock, token)
    where l.lock = d.lock and l.fencing_token = d.token
        and l.fencing_token < (select f.granted_token from fence.fences f where f.resource = l.lock);
    get diagnostics done = row_count;
    delete from fence.leases l
    where (l.lock, l.fencing_token) in (
        select o.lock, o.fencing_token
        from (select u.lock, max(u.token) as token from unnest(v_locks, v_tokens) as u (lock, token) group by u.lock) d
        join fence.leases o on o.lock = d.lock and o.fencing_token < d.token and o.kept
        for update of o skip locked);
    get diagnostics v_kept = row_count;
    done := done + v_kept;

    v_fences := array(
        select f.resource from fence.fences f where f.resource = any (v_locks)
        order by f.resource for key share skip locked);
    with kept as (
        update fence.leases l set kept = true, request_id = null
        from unnest(v_locks, v_tokens) as d (lock, token), fence.fences f
        where l.lock = d.lock and l.fencing_token = d.token and f.resource = d.lock and f.resource = any (v_fences)
            and f.granted_token = d.token
        returning l.lock, l.ended_at, l.lease_id
    ), claimed as (
        insert into fence.claimed (lock, ended_at)
        select k.lock, k.ended_at from kept k where fence.is_claim(k.lease_id)
        on conflict (lock) do update set ended_at = excluded.ended_at
    )
    select count(*) into v_kept from kept;
    more := cardinality(v_locks) = p_rows_max and done + v_kept > 0;
end
$$;

-- fence.sweep_expiries(rows_max) → done: the number of expired leases that were not ended by fence.sweep_leases,
-- which counts its own, and that no sweep has counted yet; more. See fence.sweep.
create or replace function fence.sweep_expiries(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
begin
    delete from fence.expiries e
    where e.id = any (array(select o.id from fence.expiries o order by o.id limit p_rows_max));
    get diagnostics done = row_count;
    more := done = p_rows_max;
end
$$;

-- fence.sweep_claims(rows_max, age) → done: the number of claimed names that were forgotten (fence.claim): their leases and
-- fences were deleted; more. See fence.sweep. A queue uses ever new names, which would fill the disk.
--
-- A name may be forgotten when no token is admitted on it any more, and none will be that is older than its newest: its
-- fence is closed, and no open subtree above it has an older token. Without the fence, the old tokens are unknown
-- (fence.rule). A new one is greater than they, because the sequence gave them. Names with records keep their fence, for
-- the versions; so do those whose tokens another service issues, and those for which somebody waits.
--
-- The newest lease of such a name has ended before the age, and is kept (fence.sweep_ended). If its fence must stay, the
-- name is not looked at again until another claim on it is kept. The fences are locked first (fence.sweep_ended).
create or replace function fence.sweep_claims(p_rows_max integer, p_age interval, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_before timestamptz := clock_timestamp() - p_age;
    v_locks  text[];
    v_due    text[];
begin
    v_locks := array(
        select c.lock from fence.claimed c where c.ended_at < v_before order by c.ended_at limit p_rows_max);
    more := cardinality(v_locks) = p_rows_max;
    v_locks := array(
        select f.resource from fence.fences f where f.resource = any (v_locks) order by f.resource for update skip locked);

    v_due := array(
        select f.resource from fence.fences f
        where f.resource = any (v_locks) and not f.open and f.adopted_token is null and f.last_version = 0 and f.last_token <= f.granted_token
            and f.subtree_token is null
            and not exists (select from fence.waiters w where w.lock = f.resource)
            and not exists (
                select from fence.fences a
                where a.open and a.subtree_token = a.granted_token and a.subtree_token < f.granted_token
                    and a.resource = any (fence.ancestors(f.resource)))
            and not fence.has_external_tokens(f.resource)
            and not exists (
                select from fence.leases l
                where l.lock = f.resource and not (l.kept and fence.is_claim(l.lease_id))));
    delete from fence.claimed c where c.lock = any (v_locks);
    delete from fence.leases l where l.lock = any (v_due);
    delete from fence.fences f where f.resource = any (v_due);
    get diagnostics done = row_count;
    more := more and done > 0;
end
$$;
