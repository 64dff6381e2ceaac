-- fence.lease_request(lock, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata) → what is asked for, as a lease that is not granted
-- yet: fence.acquire and fence.grant_lease take it. Raises 23514 (constraint name_is_path) for a lock that is no name.
create or replace function fence.lease_request(
    p_lock text, p_owner_id text, p_mode text, p_scope text, p_ttl_ms integer, p_session_id uuid, p_request_id text, p_metadata json)
returns fence.leases
language plpgsql
as $$
declare
    v_asked fence.leases;
begin
    v_asked.lock := p_lock;
    v_asked.owner_id := p_owner_id;
    v_asked.mode := p_mode;
    v_asked.scope := p_scope;
    v_asked.ttl_ms := p_ttl_ms;
    v_asked.requested_ttl_ms := p_ttl_ms;
    v_asked.session_id := p_session_id;
    v_asked.request_id := p_request_id;
    v_asked.metadata := p_metadata;
    return v_asked;
end
$$;
