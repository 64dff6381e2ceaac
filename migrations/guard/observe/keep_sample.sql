-- fence.keep_sample(gateway, totals) → the time of the sample.
--
-- Stores the state of a gateway and, as a sample, the difference between its totals and its report before; the first
-- sample of a gateway covers its time from the start. Called again with the same totals, after a lost answer, it adds
-- only an empty sample. The commit waits for neither the disk nor standbys: a crash loses the sample and the report
-- together, so the next sample has its counts.
--
-- Totals count from the start of a gateway and never fall. durations has as many elements as before. A sample ends with
-- its last element that is not 0, because most have few or none, and there are many of them.
create or replace function fence.keep_sample(
    p_gateway_id uuid, p_name text, p_version text, p_uptime_ms bigint,
    p_waiting bigint, p_streams bigint, p_queue bigint, p_connections_busy bigint, p_connections_max bigint,
    p_listening boolean,
    p_accepted bigint, p_rejected jsonb, p_failed bigint, p_durations bigint[]) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_before fence.gateway_states;
    v_at     timestamptz;
begin
    perform set_config('synchronous_commit', 'off', true);
    select * into v_before from fence.gateway_states g where g.gateway_id = p_gateway_id for update;
    v_at := clock_timestamp();
    insert into fence.samples (gateway_id, at, span_ms, accepted, rejected, failed, durations)
    select p_gateway_id, v_at,
        case when v_before.gateway_id is null then p_uptime_ms
            else greatest(extract(epoch from v_at - v_before.seen_at) * 1000, 0) end,
        p_accepted - coalesce(v_before.accepted, 0),
        (select coalesce(jsonb_object_agg(r.code, r.more), '{}')
            from (
                select n.key as code, n.value::bigint - coalesce((v_before.rejected ->> n.key)::bigint, 0) as more
                from jsonb_each_text(p_rejected) n
            ) r
            where r.more <> 0),
        p_failed - coalesce(v_before.failed, 0),
        (select coalesce(array_agg(d.more order by d.class) filter (where d.class <= d.last), '{}')
            from (
                select n.class, n.more, max(n.class) filter (where n.more <> 0) over () as last
                from (
                    select t.class, t.total - coalesce(v_before.durations[t.class], 0) as more
                    from unnest(p_durations) with ordinality t (total, class)
                ) n
            ) d);

    insert into fence.gateway_states as g
    select p_gateway_id, p_name, p_version, v_at - p_uptime_ms * interval '1 millisecond', v_at,
        p_waiting, p_streams, p_queue, p_connections_busy, p_connections_max, p_listening,
        p_accepted, p_rejected, p_failed, p_durations
    on conflict (gateway_id) do update
    set name = excluded.name, version = excluded.version, seen_at = excluded.seen_at, waiting = excluded.waiting,
        streams = excluded.streams, queue = excluded.queue, connections_busy = excluded.connections_busy,
        connections_max = excluded.connections_max, listening = excluded.listening, accepted = excluded.accepted,
        rejected = excluded.rejected, failed = excluded.failed, durations = excluded.durations;
    return v_at;
end
$$;
