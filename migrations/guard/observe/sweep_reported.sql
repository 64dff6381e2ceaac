-- fence.sweep_reported(rows_max) → done: the number of rejections by SQL that were moved to fence.rejections; more. See
-- fence.sweep. It reads those of rolled back transactions first (fence.read_slots). Those whose row in fence.rejections
-- is locked stay. It also adds up how many there were, by code.
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
        when v_reset <> (select s.stats_reset from fence.sweeps s where s.part = 'reported') then 32 else 0 end;
begin
    update fence.rejected_by_sql c
    set rejections = c.rejections + greatest(now.value - c.read - v_ahead, 0), read = now.value
    from (select r.code, pg_sequence_last_value(r.counter) as value from fence.rejected_by_sql r) now
    where now.code = c.code and now.value <> c.read;
    perform fence.read_slots(v_ahead);
    with taken as materialized (
        select r as rejection from fence.reported r order by r.id limit p_rows_max for update skip locked
    ), groups as materialized (
        select row_number() over () as n, array_agg((t.rejection).id) as ids, sum((t.rejection).count)::bigint as count,
            min((t.rejection).at) as first_at, max((t.rejection).at) as last_at,
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
