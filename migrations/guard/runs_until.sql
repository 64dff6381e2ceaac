-- fence.runs_until(lease) → when the lease runs out: at its own time, or with its session.
create or replace function fence.runs_until(p_lease fence.leases) returns timestamptz
language plpgsql stable
as $$
begin
    if p_lease.session_id is null then
        return p_lease.expires_at;
    end if;
    return coalesce((
        select least(s.ended_at, s.expires_at) from fence.sessions s where s.session_id = p_lease.session_id), '-infinity');
end
$$;
