-- fence.create_session(owner_id, ttl_ms, metadata, principal) → the new session.
create or replace function fence.create_session(
    p_owner_id text, p_ttl_ms integer, p_metadata json, p_principal text, out session fence.sessions)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_now   timestamptz := clock_timestamp();
    v_until timestamptz := v_now + p_ttl_ms * interval '1 millisecond';
begin
    perform fence.commit_durably();
    insert into fence.sessions as s (
        session_id, owner_id, ttl_ms, created_at, expires_at, check_at, metadata, principal, policies_seen)
    values (gen_random_uuid(), p_owner_id, p_ttl_ms, v_now, v_until, v_until, p_metadata, p_principal, -1)
    returning s.* into session;
end
$$;
