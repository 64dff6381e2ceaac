-- fence.request_conflict(earlier, request) → why an acquire is not the one before it with the same request_id: the outcome
-- request_id_reused, if that was another owner's, or request_id_changed, if it had another mode, scope, TTL, session or
-- metadata; null if it is. earlier is that request, or the lease that it was granted, whose ttl_ms a renewal may have
-- changed. A lease in a session has no TTL of its own.
create or replace function fence.request_conflict(p_earlier fence.leases, p_request fence.leases) returns text
language plpgsql immutable
as $$
begin
    return case
        when (p_earlier.owner_id, p_earlier.principal) <> (p_request.owner_id, p_request.principal)
            then 'request_id_reused'
        when (p_earlier.mode, p_earlier.scope, p_earlier.session_id, p_earlier.metadata::text)
                is distinct from (p_request.mode, p_request.scope, p_request.session_id, p_request.metadata::text)
            or p_request.session_id is null and p_earlier.requested_ttl_ms <> p_request.ttl_ms
            then 'request_id_changed'
    end;
end
$$;
