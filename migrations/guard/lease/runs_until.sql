-- fence.runs_until(lease) → when the lease expires, see fence.lease_until. Reads its session.
create or replace function fence.runs_until(p_lease fence.leases) returns timestamptz
language plpgsql stable
as $$
declare
    v_session fence.sessions;
begin
    if p_lease.session_id is not null then
        select * into v_session from fence.sessions s where s.session_id = p_lease.session_id;
    end if;
    return fence.lease_until(p_lease, v_session);
end
$$;
