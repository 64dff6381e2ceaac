-- fence.sweep_history(retention, rows_max) → how many samples were forgotten that are older than the retention, at most rows_max in a call;
-- and gateways that were not heard of for as long.
create or replace function fence.sweep_history(p_retention interval, p_rows_max integer, out forgotten bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    delete from fence.gateway_states g where g.seen_at < clock_timestamp() - p_retention;
    with old as (
        select s.ctid as place from fence.samples s
        where s.at < clock_timestamp() - p_retention
        order by s.at limit p_rows_max for update skip locked
    ), gone as (
        delete from fence.samples s using old where s.ctid = old.place returning 1
    )
    select count(*) into forgotten from gone;
end
$$;
