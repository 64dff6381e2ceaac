-- fence.provided_due(provider, lock, rows_max) → the leases that the provider keeps and that a gateway should ask it
-- for: those on the lock, or, if that is null, those whose check_at has passed.
create or replace function fence.provided_due(p_provider text, p_lock text, p_rows_max integer)
returns table (lock text, owner_id text, lease_id uuid, fencing_token bigint)
language sql volatile
as $$
    select l.lock, l.owner_id, l.lease_id, l.fencing_token from fence.leases l
    where p_lock is null and l.ended_at is null and l.check_at < 'infinity' and l.check_at <= clock_timestamp()
        and fence.lease_provider(l.lease_id) = p_provider
    union all
    select l.lock, l.owner_id, l.lease_id, l.fencing_token from fence.leases l
    where l.lock = p_lock and l.ended_at is null and fence.lease_provider(l.lease_id) = p_provider
    limit p_rows_max
$$;
