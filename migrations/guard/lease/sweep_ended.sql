-- fence.sweep_ended(rows_max, retention) → done: the number of leases deleted that ended before the retention; more. See
-- fence.sweep.
--
-- The newest lease of a lock stays, so that a late holder can be given the reason for its loss. It is marked as kept,
-- which takes it out of the index, until the next grant (fence.grant_lease). Invariant: a kept lease is the newest. A
-- grant locks the fence for update, so either it sees the mark, or the fence is skipped here.
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

    v_fences := array(
        select f.resource from fence.fences f where f.resource = any (v_locks)
        order by f.resource for key share skip locked);
    update fence.leases l set kept = true
    from unnest(v_locks, v_tokens) as d (lock, token), fence.fences f
    where l.lock = d.lock and l.fencing_token = d.token and f.resource = d.lock and f.resource = any (v_fences)
        and f.granted_token = d.token;
    get diagnostics v_kept = row_count;
    more := cardinality(v_locks) = p_rows_max and done + v_kept > 0;
end
$$;
