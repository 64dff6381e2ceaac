-- fence.runs_until(lease) → when the lease runs out: at its own time, which is never after its hold_until; or with its session, but no
-- later than its hold_until.
create or replace function fence.runs_until(p_lease fence.leases) returns timestamptz
language plpgsql stable
as $$
begin
    if p_lease.session_id is null then
        return p_lease.expires_at;
    end if;
    return coalesce((
        select least(s.ended_at, s.expires_at, p_lease.hold_until) from fence.sessions s where s.session_id = p_lease.session_id), '-infinity');
end
$$;
