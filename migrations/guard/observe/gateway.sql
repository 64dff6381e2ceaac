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

-- fence.forget_gateway(gateway_id) notes that a gateway has ended. The others read its last totals before the sweep
-- deletes it (fence.sweep_gateways). The commit does not wait for the disk.
create or replace function fence.forget_gateway(p_gateway_id uuid) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    update fence.gateway_states g set ended = true where g.gateway_id = p_gateway_id;
end
$$;

-- fence.probe() commits as little as there can be, as durably as what is acknowledged: it returns when the database can
-- accept writes. It also writes a temporary file of 256 kB, beyond its work_mem, where the database's tables are. That
-- finds a full disk (53100) that the commit does not need.
--
-- It locks nothing, and leaves some 120 bytes in the write-ahead log.
create or replace function fence.probe() returns void
language plpgsql set search_path = pg_catalog, pg_temp set work_mem = '64kB' set temp_tablespaces = ''
as $$
begin
    perform fence.commit_durably();
    perform count(*) from unnest(array_fill(repeat('x', 8192), array[32]));
    perform pg_logical_emit_message(true, 'fencegate', '');
end
$$;
