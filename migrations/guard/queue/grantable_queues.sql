-- fence.grantable_queues(known) → the queues whose first waiter nothing blocks (fence.blockers): for each its lock,
-- granted_token and since. known is the result of the count before: a queue that it has keeps its since, unless the
-- lock was granted. At most 100, the longest first.
--
-- It looks at queues for 100 ms: at the known ones, then at the others in any order, so each has its turn. A look costs
-- the more, the more names are above.
create or replace function fence.grantable_queues(p_known jsonb) returns jsonb
language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    return (
        with first as materialized (
            select f.*, k.granted_token as known_token, k.since
            from (
                select distinct on (w.lock) w.lock, w.mode, w.scope, w.ticket from fence.live_waiters() w
                order by w.lock, w.ticket) f
            left join jsonb_to_recordset(p_known) as k (lock text, granted_token bigint, since timestamptz)
                on k.lock = f.lock
            order by k.lock is null, random()
        ), deadline as materialized ( -- after all have been read
            select clock_timestamp() + interval '100 milliseconds' as at from (select count(*) from first) f
        ), free as materialized (
            select f.lock, f.known_token, f.since, coalesce((
                select o.granted_token from fence.fences o where o.resource = f.lock), 0) as granted_token
            from first f -- and nothing else: a join would be done before the clock is read
            where clock_timestamp() < (select d.at from deadline d)
                and not exists (select from fence.blockers(f.lock, f.mode, f.scope, f.ticket, 1))
        )
        select coalesce(jsonb_agg(q), '[]')
        from (
            select f.lock, f.granted_token,
                case when f.known_token = f.granted_token then f.since else v_now end as since
            from free f
            order by since limit 100) q
    );
end
$$;
