-- fence.revoke_key(id) → the key; null if there is none. Revoked twice, it keeps the time of the first.
create or replace function fence.revoke_key(p_id text) returns fence.keys
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_key fence.keys;
begin
    perform fence.note_key_change();
    update fence.keys k set revoked_at = coalesce(k.revoked_at, clock_timestamp()) where k.id = p_id
    returning k.* into v_key;
    return v_key;
end
$$;
