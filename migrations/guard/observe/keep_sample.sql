-- fence.keep_sample(gateway, totals) → the time of the sample.
--
-- Stores the state of a gateway and its totals, which count from its start, in place of the sample before. The commit
-- waits for neither the disk nor standbys: the next sample has what a crash loses.
create or replace function fence.keep_sample(
    p_gateway_id uuid, p_name text, p_version text, p_uptime_ms bigint,
    p_waiting bigint, p_streams bigint, p_queue bigint, p_connections_busy bigint, p_connections_max bigint,
    p_listening boolean,
    p_accepted bigint, p_rejected jsonb, p_failed bigint, p_durations bigint[], p_draining boolean) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_at timestamptz := clock_timestamp();
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into fence.gateway_states as g
    select p_gateway_id, p_name, p_version, v_at - p_uptime_ms * interval '1 millisecond', v_at,
        p_waiting, p_streams, p_queue, p_connections_busy, p_connections_max, p_listening,
        p_accepted, p_rejected, p_failed, p_durations, p_draining
    on conflict (gateway_id) do update
    set name = excluded.name, version = excluded.version, seen_at = excluded.seen_at, waiting = excluded.waiting,
        streams = excluded.streams, queue = excluded.queue, connections_busy = excluded.connections_busy,
        connections_max = excluded.connections_max, listening = excluded.listening, accepted = excluded.accepted,
        rejected = excluded.rejected, failed = excluded.failed, durations = excluded.durations,
        draining = excluded.draining;
    return v_at;
end
$$;
