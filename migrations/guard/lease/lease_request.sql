-- fence.lease_request(lock, owner_id, mode, scope, ttl_ms, session_id, request_id, metadata, principal) → a request, as a
-- lease that is not granted yet; fence.acquire_lease and fence.grant_lease take it. Raises 23514 (constraint name_is_path) if
-- lock is not a name.
create or replace function fence.lease_request(
    p_lock text, p_owner_id text, p_mode text, p_scope text, p_ttl_ms integer,
    p_session_id uuid, p_request_id text, p_metadata json, p_principal text default '')
returns fence.leases
language plpgsql
as $$
declare
    v_request fence.leases;
begin
    v_request.lock := p_lock;
    v_request.owner_id := p_owner_id;
    v_request.mode := p_mode;
    v_request.scope := p_scope;
    v_request.ttl_ms := p_ttl_ms;
    v_request.requested_ttl_ms := p_ttl_ms;
    v_request.session_id := p_session_id;
    v_request.request_id := p_request_id;
    v_request.metadata := p_metadata;
    v_request.principal := p_principal;
    return v_request;
end
$$;
