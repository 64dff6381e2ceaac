-- fence.live_keys(known_changes) → the keys that are neither revoked nor expired, each with the count of changes and the
-- time; a row of nulls with those two if there is none; no row if nothing has changed since the count known_changes.
create or replace function fence.live_keys(p_known_changes bigint)
returns table (changes bigint, at timestamptz, id text, digest bytea, principal text, grants text[],
    expires_at timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
    select c.changes, clock_timestamp(), k.id, k.digest, k.principal, k.grants, k.expires_at
    from fence.key_changes c
    left join fence.keys k on k.revoked_at is null and coalesce(k.expires_at > clock_timestamp(), true)
    where c.changes <> p_known_changes
$$;
