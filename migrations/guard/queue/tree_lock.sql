-- fence.take_tree_lock(lock, scope) takes the tree locks of a lock: advisory locks that keep requests for a lock and
-- for a subtree that contains it from being decided at the same time; neither would see the other's lease. They also
-- keep both apart from the end of a lease and from a waiter that leaves, which must see a new waiter to wake it. Held
-- until the end of the transaction; shared between requests that only have a name above in common.
--
-- Called before anything else is locked. A name without a slash that is requested alone has nothing above and covers
-- nothing below: it takes no tree lock. See fence.take_tree_locks about the order.
create or replace function fence.take_tree_lock(p_lock text, p_scope text) returns void
language plpgsql
as $$
begin
    if p_scope = 'subtree' or split_part(p_lock, '/', 3) <> '' then
        perform fence.take_tree_locks(array[p_lock], array[p_scope]);
    elsif position('/' in p_lock) > 0 then
        perform pg_advisory_xact_lock_shared(1718511205, hashtext(split_part(p_lock, '/', 1))); -- the only name above
    end if;
end
$$;

-- fence.take_tree_lock_alone(hash) takes a tree lock alone, see fence.take_tree_locks.
--
-- PostgreSQL lets later requests for a tree lock wait behind this one, also those that share it with its holders. While
-- one of these keeps its transaction open, they must not all wait. So this stands in that queue for 40 ms at most,
-- which is enough for holders that commit, however many come; then it leaves for four times as long, and only tries.
--
-- Raises 55P03 after the lock_timeout, or after 10 s without one: PostgreSQL does not see a deadlock between
-- transactions that take the tree locks of several requests.
create or replace function fence.take_tree_lock_alone(p_hash integer) returns void
language plpgsql
as $$
declare
    v_timeout text := current_setting('lock_timeout');
    v_until   timestamptz;
    v_ms      integer := 5;
begin
    if pg_try_advisory_xact_lock(1718511205, p_hash) then
        return;
    end if;
    v_until := clock_timestamp() + coalesce(nullif(v_timeout::interval, interval '0'), interval '10 s');
    loop
        v_ms := least(2 * v_ms, 40);
        begin
            perform set_config('lock_timeout', v_ms::text, true);
            perform pg_advisory_xact_lock(1718511205, p_hash);
            perform set_config('lock_timeout', v_timeout, true);
            return;
        exception
            when lock_not_available then
                null; -- the setting is as it was
        end;
        for try in 1 .. 4 loop
            if clock_timestamp() > v_until then
                raise exception 'another transaction uses names below that of the subtree, or above'
                    using errcode = 'lock_not_available';
            end if;
            perform pg_sleep(v_ms * 0.001);
            if pg_try_advisory_xact_lock(1718511205, p_hash) then
                return;
            end if;
        end loop;
    end loop;
end
$$;

-- fence.take_tree_locks(locks, scopes) takes the tree locks of several locks, see fence.take_tree_lock.
--
-- All keys are taken in the order of their hashes, so no two calls wait for each other in a cycle. Names with equal
-- hashes wait for each other without need; nothing else happens.
create or replace function fence.take_tree_locks(p_locks text[], p_scopes text[]) returns void
language plpgsql
as $$
declare
    v_key record;
begin
    for v_key in
        select k.hash, bool_or(k.alone) as alone
        from (
            select hashtext(a) as hash, false as alone from unnest(p_locks) l, unnest(fence.ancestors(l)) a
            union all
            select hashtext(u.lock), true from unnest(p_locks, p_scopes) as u (lock, scope) where u.scope = 'subtree') k
        group by k.hash
        order by k.hash
    loop
        if v_key.alone then
            perform fence.take_tree_lock_alone(v_key.hash);
        else
            perform pg_advisory_xact_lock_shared(1718511205, v_key.hash);
        end if;
    end loop;
end
$$;

-- fence.try_tree_lock(lock) → whether this transaction has the tree locks of the lock now, taken without a wait; see
-- fence.take_tree_lock. It has not if a request for a subtree that contains the lock has one of them, or waits for it.
-- A lock without a slash needs none.
--
-- The caller bounds the number of tree locks: the lock table of a server with default settings holds some thousands,
-- for all.
create or replace function fence.try_tree_lock(p_lock text) returns boolean
language plpgsql
as $$
begin
    if split_part(p_lock, '/', 3) = '' then -- one name above at most: an expression costs a tenth of a query
        return position('/' in p_lock) = 0
            or pg_try_advisory_xact_lock_shared(1718511205, hashtext(split_part(p_lock, '/', 1)));
    end if;
    return not exists (
        select from unnest(fence.ancestors(p_lock)) a
        where not pg_try_advisory_xact_lock_shared(1718511205, hashtext(a)));
end
$$;

-- fence.try_tree_locks(locks) → those of the locks whose tree locks this transaction has now (fence.try_tree_lock).
create or replace function fence.try_tree_locks(p_locks text[]) returns text[]
language plpgsql
as $$
begin
    return array(select l from unnest(p_locks) l where fence.try_tree_lock(l));
end
$$;

-- fence.has_subtrees(lock) → whether a subtree lease was requested for its name or one above it. The caller holds the
-- tree lock of the lock (fence.take_tree_lock), or asks again later.
create or replace function fence.has_subtrees(p_lock text) returns boolean
language plpgsql
as $$
begin
    return exists (select from fence.subtrees) and exists (
        select from fence.subtrees s where s.name = any (fence.ancestors(p_lock) || p_lock));
end
$$;

-- fence.count_within_tree_locks(locks, scopes, tree_locks_max) → how many of these locks, from the first, take at most
-- tree_locks_max tree locks together (fence.take_tree_locks); at least one. The lock table of a server with default
-- settings holds some thousands, for all.
create or replace function fence.count_within_tree_locks(
    p_locks text[], p_scopes text[], p_tree_locks_max integer)
returns integer
language plpgsql immutable
as $$
declare
    v_tree_locks text[] := '{}';
begin
    for n in 1 .. coalesce(cardinality(p_locks), 0) loop
        v_tree_locks := v_tree_locks || array(
            select g from unnest(fence.ancestors(p_locks[n]) || case p_scopes[n] when 'subtree'
                then array[p_locks[n]] end) g
            where g <> all (v_tree_locks));
        if cardinality(v_tree_locks) > p_tree_locks_max then
            return greatest(n - 1, 1);
        end if;
    end loop;
    return coalesce(cardinality(p_locks), 0);
end
$$;

-- fence.tree_locks_held() → the keys of the tree locks (fence.take_tree_lock) that this transaction has.
--
-- The first request of a transaction finds that it has written nothing yet, and so looks no further: to read pg_locks
-- costs more than a request, and more with the locks of others. A count in a setting would be the caller's to change.
create or replace function fence.tree_locks_held() returns bigint[]
language plpgsql
as $$
begin
    if pg_current_xact_id_if_assigned() is null then
        return '{}'; -- not in one expression, which would be a query, and lock the view, in any case
    end if;
    return array(
        select distinct l.objid::bigint from pg_locks l
        where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.classid = 1718511205 and l.objsubid = 2);
end
$$;

-- fence.within_tree_locks(locks) → those of the locks whose tree locks are among the first 64 that this transaction
-- takes (fence.tree_locks_held, fence.take_tree_lock).
create or replace function fence.within_tree_locks(p_locks text[]) returns text[]
language plpgsql
as $$
declare
    v_held  bigint[];
    v_fit   text[] := '{}';
    v_above record;
    v_all   bigint[];
begin
    for v_above in
        select u.above, min(u.l) as lock
        from (select l, n, substring(l from '^(.*)/') as above from unnest(p_locks) with ordinality as u (l, n)) u
        where u.above is not null
        group by u.above order by min(u.n)
    loop
        v_held := coalesce(v_held, fence.tree_locks_held());
        v_all := array(
            select unnest(v_held) union select hashtext(a)::bigint & 4294967295 from unnest(fence.ancestors(v_above.lock)) a);
        if cardinality(v_all) <= 64 then
            v_held := v_all;
            v_fit := v_fit || v_above.above;
        end if;
    end loop;
    return array(
        select l from unnest(p_locks) l where coalesce(substring(l from '^(.*)/') = any (v_fit), true));
end
$$;
