-- fence.request_differs(earlier, request) → whether an acquire requests something else than the one before it with the
-- same request_id: another mode, scope, TTL, session or metadata. earlier is that request, or the lease that it was
-- granted, whose ttl_ms a renewal may have changed. A lease in a session has no TTL of its own.
create or replace function fence.request_differs(p_earlier fence.leases, p_request fence.leases) returns boolean
language plpgsql immutable
as $$
begin
    return (p_earlier.mode, p_earlier.scope, p_earlier.session_id, p_earlier.metadata::text)
            is distinct from (p_request.mode, p_request.scope, p_request.session_id, p_request.metadata::text)
        or p_request.session_id is null and p_earlier.requested_ttl_ms <> p_request.ttl_ms;
end
$$;
