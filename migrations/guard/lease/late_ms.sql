-- fence.late_ms(ttl_ms, expires_at) → how much later than a third of the TTL after the last renewal it is now, in
-- milliseconds; negative: earlier. It decides nothing: holders are asked to renew that often, and a metric shows
-- whether they do.
create or replace function fence.late_ms(p_ttl_ms integer, p_expires_at timestamptz) returns bigint
language sql volatile
as $$
    select (extract(epoch from clock_timestamp() - p_expires_at) * 1000)::bigint + p_ttl_ms * 2 / 3
$$;
