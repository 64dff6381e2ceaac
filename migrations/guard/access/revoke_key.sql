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
