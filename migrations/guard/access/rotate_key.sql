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
    where k.id = p_id and k.revoked_at is null and coalesce(k.expires_at > clock_timestamp(), true)
    for update;
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
