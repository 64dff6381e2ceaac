-- fence.create_key(id, digest, principal, description, grants, created_by, lifetime_ms, keys_max, address) → the key.
--
-- lifetime_ms null: it does not expire. address is that of the client, for fence.audit. It deletes the keys that ended
-- more than 30 days ago, and ended ones beyond the newest keys_max. Raises 54000 if there are keys_max keys that have
-- not ended.
create or replace function fence.create_key(
    p_id text, p_digest bytea, p_principal text, p_description text, p_grants text[], p_created_by text,
    p_lifetime_ms bigint, p_keys_max bigint, p_address text default null)
returns fence.keys
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_key fence.keys;
begin
    perform fence.note_key_change();
    delete from fence.keys k
    using (select e.id, least(e.expires_at, e.revoked_at) as ended_at, row_number() over (order by e.created_at desc) as n
        from fence.keys e where least(e.expires_at, e.revoked_at) <= clock_timestamp()) e
    where k.id = e.id and (e.n > p_keys_max or e.ended_at < clock_timestamp() - interval '30 days');
    if (select count(*) from fence.keys k
        where (least(k.expires_at, k.revoked_at) <= clock_timestamp()) is not true) >= p_keys_max
    then
        raise exception 'there are % live keys already', p_keys_max using errcode = 'program_limit_exceeded';
    end if;
    insert into fence.keys as k (id, digest, principal, description, grants, created_by, expires_at)
    values (p_id, p_digest, p_principal, p_description, p_grants, p_created_by,
        clock_timestamp() + p_lifetime_ms * interval '1 millisecond')
    returning k.* into v_key;
    perform fence.note_action('key_created', '', jsonb_build_object(
        'key_id', p_id, 'principal', p_principal, 'description', p_description, 'grants', p_grants,
        'expires_at', v_key.expires_at), p_created_by, p_address);
    return v_key;
end
$$;

-- fence.rotate_key(id, new_id, new_digest, created_by, lifetime_ms, overlap_ms, keys_max, address) → a new key with the
-- principal, description and grants of a key that is live; null if there is no such key.
--
-- The old key expires after overlap_ms, if it does not before. lifetime_ms null: the new key lasts as long as the old
-- one would have lasted from its beginning. Raises 54000 if there are keys_max keys that have not ended.
create or replace function fence.rotate_key(
    p_id text, p_new_id text, p_new_digest bytea, p_created_by text, p_lifetime_ms bigint, p_overlap_ms bigint,
    p_keys_max bigint, p_address text default null)
returns fence.keys
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_old  fence.keys;
    v_ends timestamptz;
begin
    perform fence.note_key_change();
    select * into v_old from fence.keys k
    where k.id = p_id and k.revoked_at is null and coalesce(k.expires_at > clock_timestamp(), true);
    if not found then
        return null;
    end if;
    update fence.keys k
    set expires_at = least(k.expires_at, clock_timestamp() + p_overlap_ms * interval '1 millisecond')
    where k.id = p_id
    returning k.expires_at into v_ends;
    perform fence.note_action('key_rotated', '', jsonb_build_object(
        'key_id', p_id, 'new_key_id', p_new_id, 'principal', v_old.principal, 'expires_at', v_ends),
        p_created_by, p_address);
    return fence.create_key(p_new_id, p_new_digest, v_old.principal, v_old.description, v_old.grants, p_created_by,
        coalesce(p_lifetime_ms, (extract(epoch from v_old.expires_at - v_old.created_at) * 1000)::bigint), p_keys_max,
        p_address);
end
$$;

-- fence.revoke_key(id, principal, address) → the key; null if there is none. Revoked twice, it keeps the time of the
-- first. See fence.note_action for principal and address.
create or replace function fence.revoke_key(
    p_id text, p_principal text default null, p_address text default null)
returns fence.keys
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_key fence.keys;
begin
    perform fence.note_key_change();
    update fence.keys k set revoked_at = clock_timestamp() where k.id = p_id and k.revoked_at is null
    returning k.* into v_key;
    if found then
        perform fence.note_action('key_revoked', '', jsonb_build_object(
            'key_id', p_id, 'principal', v_key.principal), p_principal, p_address);
    else
        select * into v_key from fence.keys k where k.id = p_id;
    end if;
    return v_key;
end
$$;

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

-- fence.note_key_change(): this transaction changes fence.keys. It comes first in each function that does.
--
-- Invariant: the changes of keys are made one after the other, so a gateway that has read the keys at some count of
-- changes has seen all of them up to it. Gateways are notified at the commit (the channel fence_keys).
create or replace function fence.note_key_change() returns void
language plpgsql
as $$
begin
    perform fence.commit_durably();
    update fence.key_changes c set changes = c.changes + 1;
    perform pg_notify('fence_keys', '');
end
$$;

-- fence.note_key_uses(ids, ages_ms): these keys were last used so long ago. The commit does not wait for the disk.
create or replace function fence.note_key_uses(p_ids text[], p_ages_ms bigint[]) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    perform from fence.keys k where k.id = any (p_ids) order by k.id for no key update;
    update fence.keys k
    set last_used_at = greatest(k.last_used_at, clock_timestamp() - u.age_ms * interval '1 millisecond')
    from unnest(p_ids, p_ages_ms) as u (id, age_ms)
    where k.id = u.id;
end
$$;
