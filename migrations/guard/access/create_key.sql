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
