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

-- fence.lock_subtree(name, mode) locks all that a request for a subtree lease of this name needs: its tree locks, the
-- fences of subtrees that concern it, and the fence of the name. The fences of subtrees are its own, which is made if
-- missing, and the open ones of the names above and below. A writer holds the one whose token it presents
-- (fence.lock_write_tokens), whether its resource has a fence yet or not: so a grant of the subtree waits for it (P3).
-- The grant then changes these rows (fence.grant_lease). If no lease of another is in the way, the open fences below
-- are locked, too: the grant closes them.
--
-- mode  of the requested lease; null to end one, which needs no more than its tree locks and the rows of the name
--
-- While it has the tree lock, all other requests below wait. So it waits 40 ms for a row, and then starts anew, without
-- the tree lock, four times as long later: the transaction of a late holder may stay open. The tree lock keeps subtrees
-- from being opened or made meanwhile. The sweep may delete the row of an unused name before it is locked here; then it
-- is made again.
--
-- Raises 55P03 after the lock_timeout, or after 10 s without one.
create or replace function fence.lock_subtree(p_name text, p_mode text) returns void
language plpgsql
as $$
declare
    v_timeout text := current_setting('lock_timeout');
    v_until   timestamptz := clock_timestamp()
        + coalesce(nullif(v_timeout::interval, interval '0'), interval '10 s');
begin
    loop
        begin
            perform fence.take_tree_lock(p_name, 'subtree');
            perform set_config('lock_timeout', '40', true);
            if p_mode is null then
                perform from fence.subtrees s where s.name = p_name for update;
                perform from fence.fences f where f.resource = p_name for update;
                perform set_config('lock_timeout', v_timeout, true);
                return;
            end if;
            loop
                insert into fence.subtrees (name) values (p_name) on conflict do nothing;
                perform from fence.subtrees s
                where s.name = p_name
                    or s.open and (s.name = any (fence.ancestors(p_name)) or fence.is_below(s.name, p_name))
                order by s.name for update;
                exit when exists (select from fence.subtrees s where s.name = p_name);
            end loop;
            perform fence.lock_fence(p_name);
            if (fence.longest_running(array(
                select r from fence.conflicting_leases(p_name, p_mode, 'subtree') r))).lock is null
            then
                perform from fence.fences f where fence.is_below(f.resource, p_name) and f.open
                order by f.resource for update;
            end if;
            perform set_config('lock_timeout', v_timeout, true);
            return;
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
