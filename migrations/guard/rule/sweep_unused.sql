-- fence.sweep_unused(rows_max) → done: the number of names whose rows (fence, subtree) were deleted, because they were
-- never granted nor written; more. A name that has a waiter is looked at again after a minute. See fence.sweep.
--
-- The rows are locked first, and judged by a later statement. A caller that needs a fence and finds none makes it again
-- (fence.lock_fence, fence.lock_subtree, fence.admit).
create or replace function fence.sweep_unused(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_now      timestamptz := clock_timestamp();
    v_names    text[];
    v_subtrees text[];
    v_fences   text[];
    v_waiting  text[];
begin
    v_names := array(
        select u.name from fence.unused u where u.check_at <= v_now
        order by u.check_at limit p_rows_max for update skip locked);
    if cardinality(v_names) = 0 then
        return;
    end if;
    v_subtrees := array(select s.name from fence.subtrees s where s.name = any (v_names)
        order by s.name for update skip locked);
    v_fences := array(select f.resource from fence.fences f where f.resource = any (v_names)
        order by f.resource for update skip locked);

    v_waiting := array(
        select n from unnest(v_names) n
        where exists (select from fence.waiters w where w.lock = n)
            or exists (select from fence.subtrees s where s.name = n and s.name <> all (v_subtrees))
            or exists (select from fence.fences f where f.resource = n and f.resource <> all (v_fences)));
    update fence.unused u set check_at = clock_timestamp() + interval '1 minute' where u.name = any (v_waiting);
    v_names := array(select n from unnest(v_names) n where n <> all (v_waiting));

    delete from fence.subtrees s where s.name = any (v_names) and s.granted_token = 0;
    delete from fence.fences f
    where f.resource = any (v_names) and f.granted_token = 0 and f.last_token = 0 and f.last_version = 0;
    get diagnostics done = row_count;
    delete from fence.unused u where u.name = any (v_names);
    more := cardinality(v_names) + cardinality(v_waiting) = p_rows_max;
end
$$;
