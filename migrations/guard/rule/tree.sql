-- fence.ancestors(name) → the names above a name, the topmost first; none for a name without a slash.
create or replace function fence.ancestors(p_name text) returns text[]
language plpgsql immutable parallel safe
as $$
declare
    v_segments  text[] := string_to_array(p_name, '/');
    v_ancestors text[] := '{}';
begin
    for depth in 1 .. cardinality(v_segments) - 1 loop
        v_ancestors := v_ancestors || array_to_string(v_segments[1:depth], '/');
    end loop;
    return v_ancestors;
end
$$;

-- fence.is_below(name, ancestor) → whether the name is in the subtree of the ancestor, and not the ancestor itself.
--
-- '0' is the character after '/'. The planner inlines the expression, so an index on the name finds the range.
create or replace function fence.is_below(p_name text, p_ancestor text) returns boolean
language sql immutable parallel safe
as $$
    select p_name collate "C" > p_ancestor || '/' and p_name collate "C" < p_ancestor || '0'
$$;

-- fence.has_subtrees(lock) → whether a subtree lease was requested for a name above. Only then do leases, waiters and
-- tokens above concern the lock. The caller holds its tree lock, or asks again later. The planner inlines it.
create or replace function fence.has_subtrees(p_lock text) returns boolean
language sql stable
return position('/' in p_lock) > 0 and fence.granted_above(p_lock) is not null;

-- fence.granted_above(name) → the newest token of a subtree lease on a name above; 0 if one was requested, null if none.
create or replace function fence.granted_above(p_name text) returns bigint
language plpgsql stable
as $$
begin
    if position('/' in p_name) = 0 then -- an expression costs a tenth of a query
        return null;
    end if;
    return (select max(f.subtree_token) from fence.fences f where f.resource = any (fence.ancestors(p_name)));
end
$$;

-- fence.lock_subtree(name, mode) locks all that a request for a subtree lease of this name needs: its tree lock, the open
-- fences of subtree leases above, and the fence of the name, which is made if missing. A write that adopts a token of these
-- fences holds one of them meanwhile (fence.lock_write_tokens): so a grant of the subtree waits for it (P3). → the lease
-- that is in the way; of several the one that runs longest. Or null: then the fences below are locked, too
-- (fence.lock_below), and the grant closes them.
--
-- The request has to wait for the lease that this returns, even if it has expired by the time of its decision: to lock
-- the fences below only then would be to wait with the tree lock.
--
-- mode  of the requested lease; null to end one: that needs its tree lock, the fence of the name, and those that adopted
--       its token
--
-- While it has the tree lock, all other requests of the tree wait. So it waits 40 ms for a row, and then starts anew,
-- without the tree lock, four times as long later: the transaction of a late holder may stay open.
--
-- Raises 55P03 after the lock_timeout, or after 10 s without one; LF008 as fence.check_here does.
create or replace function fence.lock_subtree(p_name text, p_mode text) returns fence.leases
language plpgsql
as $$
declare
    v_timeout text := current_setting('lock_timeout');
    v_until   timestamptz := clock_timestamp()
        + coalesce(nullif(v_timeout::interval, interval '0'), interval '10 s');
    v_fence   fence.fences;
    v_blocker fence.leases;
begin
    perform fence.check_here(p_name);
    loop
        begin
            perform fence.take_tree_lock(p_name, 'subtree');
            perform set_config('lock_timeout', '40', true);
            if p_mode is null then
                select * into v_fence from fence.fences f where f.resource = p_name for update;
                if v_fence.open and v_fence.subtree_token = v_fence.granted_token then
                    perform fence.lock_below(p_name, v_fence.granted_token);
                end if;
            else
                perform from fence.fences f
                where f.resource = any (fence.ancestors(p_name)) and f.open and f.subtree_token = f.granted_token
                order by f.resource for update;
                perform fence.lock_fence(p_name);
                update fence.fences f set subtree_token = 0 where f.resource = p_name and f.subtree_token is null;
                v_blocker := fence.longest_running(array(
                    select r from fence.conflicting_leases(p_name, p_mode, 'subtree') r));
                if v_blocker.lock is null then
                    perform fence.lock_below(p_name, null);
                end if;
            end if;
            perform set_config('lock_timeout', v_timeout, true);
            return v_blocker;
        exception
            when lock_not_available then
                if clock_timestamp() >= v_until then
                    raise;
                end if;
        end;
        perform pg_sleep(0.16);
    end loop;
end
$$;

-- fence.lock_below(name, token) → the fences below the name that older tokens may write to, which it locks: those that
-- have adopted this token; or if it is null, all that are open, that have adopted any, or by which this very transaction
-- was admitted. To find all, it reads every fence below.
--
-- While this waits for the fence of a subtree lease, others may adopt its token, which this does not see. So a grant calls
-- it twice: for the locks (fence.lock_subtree), after which none can be adopted any more, and to close them
-- (fence.grant_lease).
create or replace function fence.lock_below(p_name text, p_token bigint) returns text[]
language plpgsql
as $$
begin
    if p_token is not null then
        return array(
            select f.resource from fence.fences f
            where f.adopted_token = p_token and fence.is_below(f.resource, p_name)
            order by f.resource for update);
    end if;
    return array(
        select f.resource from fence.fences f
        where fence.is_below(f.resource, p_name)
            and (f.open or f.adopted_token is not null or f.admitted_in = pg_current_xact_id())
        order by f.resource for update);
end
$$;

-- fence.try_below(name, token) → whether it has locked all fences of fence.lock_below, without a wait.
create or replace function fence.try_below(p_name text, p_token bigint) returns boolean
language plpgsql
as $$
declare
    v_locked text[] := array(
        select f.resource from fence.fences f
        where f.adopted_token = p_token and fence.is_below(f.resource, p_name)
        for update skip locked);
begin
    return not exists (
        select from fence.fences f
        where f.adopted_token = p_token and fence.is_below(f.resource, p_name) and f.resource <> all (v_locked));
end
$$;

-- fence.take_tree_lock(lock, scope) takes the tree lock of a lock: an advisory lock on the first segment of its name. It
-- keeps requests for a lock and for a subtree that contains it from being decided at the same time; neither would see the
-- other's lease. It also keeps both apart from the end of a lease and from a waiter that leaves, which must see a new
-- waiter to wake it. Held until the end of the transaction, alone for a subtree, otherwise shared.
--
-- Called before anything else is locked. A name without a slash that is requested alone has nothing above and covers
-- nothing below: it takes none. Trees with equal hashes wait for each other without need; nothing else happens.
create or replace function fence.take_tree_lock(p_lock text, p_scope text) returns void
language plpgsql
as $$
begin
    if p_scope = 'subtree' then
        perform fence.take_tree_lock_alone(fence.tree_of(p_lock));
    elsif position('/' in p_lock) > 0 then
        perform pg_advisory_xact_lock_shared(1718511205, fence.tree_of(p_lock));
    end if;
end
$$;

-- fence.tree_of(lock) → the key of its tree lock. The planner inlines the expression.
create or replace function fence.tree_of(p_lock text) returns integer
language sql immutable parallel safe
return hashtext(split_part(p_lock, '/', 1));

-- fence.take_tree_lock_alone(hash) takes a tree lock alone, see fence.take_tree_lock.
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
                raise exception 'another transaction uses names of the same tree'
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

-- fence.take_tree_locks(locks, scopes) takes the tree locks of several locks, see fence.take_tree_lock; in the order of
-- their keys, so no two calls wait for each other in a cycle.
create or replace function fence.take_tree_locks(p_locks text[], p_scopes text[]) returns void
language plpgsql
as $$
declare
    v_tree record;
begin
    for v_tree in
        select fence.tree_of(u.lock) as key, bool_or(u.scope = 'subtree') as alone
        from unnest(p_locks, p_scopes) as u (lock, scope)
        where u.scope = 'subtree' or position('/' in u.lock) > 0
        group by key order by key
    loop
        if v_tree.alone then
            perform fence.take_tree_lock_alone(v_tree.key);
        else
            perform pg_advisory_xact_lock_shared(1718511205, v_tree.key);
        end if;
    end loop;
end
$$;

-- fence.try_tree_lock(lock) → whether this transaction has the tree lock of the lock now, taken without a wait; see
-- fence.take_tree_lock. It has not if a request for a subtree has it, or waits for it. The planner inlines the expression.
create or replace function fence.try_tree_lock(p_lock text) returns boolean
language sql
return position('/' in p_lock) = 0 or pg_try_advisory_xact_lock_shared(1718511205, fence.tree_of(p_lock));

-- fence.tree_locks_held() → the keys of the tree locks that this transaction has.
--
-- The first request of a transaction finds that it has written nothing yet, and so looks no further: to read pg_locks
-- costs more than a request, and more with the locks of others. A count in a setting would be the caller's to change.
create or replace function fence.tree_locks_held() returns integer[]
language plpgsql
as $$
begin
    if pg_current_xact_id_if_assigned() is null then
        return '{}'; -- not in one expression, which would be a query, and lock the view, in any case
    end if;
    return array(
        select distinct l.objid::bigint::bit(32)::integer from pg_locks l
        where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.classid = 1718511205 and l.objsubid = 2);
end
$$;

-- fence.within_tree_locks(locks) → those of the locks whose tree locks are among the first 64 that this transaction takes
-- (fence.check_tree_locks).
create or replace function fence.within_tree_locks(p_locks text[]) returns text[]
language plpgsql
as $$
declare
    v_trees integer[] := fence.tree_locks_held();
begin
    v_trees := v_trees || array(
        select fence.tree_of(l) from unnest(p_locks) with ordinality as u (l, n)
        where position('/' in l) > 0 and fence.tree_of(l) <> all (v_trees)
        group by fence.tree_of(l) order by min(n) limit greatest(0, 64 - cardinality(v_trees)));
    return array(
        select l from unnest(p_locks) l where position('/' in l) = 0 or fence.tree_of(l) = any (v_trees));
end
$$;
