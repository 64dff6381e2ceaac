-- fence.asks_otherwise(earlier, asked) → whether an acquire asks for something else than the one before it with the same request_id: another
-- mode, scope, TTL, session or metadata. earlier is what that asked for, or the lease that it was granted, whose ttl_ms a renewal may have
-- changed. A lease in a session has no TTL of its own. Of a lease granted before requested_ttl_ms was kept, the TTL is not compared.
create or replace function fence.asks_otherwise(p_earlier fence.leases, p_asked fence.leases) returns boolean
language plpgsql immutable
as $$
begin
    return (p_earlier.mode, p_earlier.scope, p_earlier.session_id, p_earlier.metadata::text)
            is distinct from (p_asked.mode, p_asked.scope, p_asked.session_id, p_asked.metadata::text)
        or p_asked.session_id is null and p_earlier.requested_ttl_ms <> p_asked.ttl_ms;
end
$$;
