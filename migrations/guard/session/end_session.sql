-- fence.end_session(session_id) → its status after the call: released, or expired if it had expired before, or
-- not_found. Sent twice, it succeeds twice. After its commit the session's leases no longer run; fence.settle_leases
-- ends them one by one.
--
-- Nothing but the session is locked: an acquire that holds a fence looks at conflicting sessions, and must not wait for
-- a transaction that waits for its fence.
create or replace function fence.end_session(p_session_id uuid) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_session fence.sessions;
begin
    perform fence.commit_durably();
    select * into v_session from fence.sessions s where s.session_id = p_session_id for update;
    if not found then
        return 'not_found';
    end if;
    if v_session.ended_at is not null then
        return v_session.end_reason;
    end if;
    update fence.sessions s
    set ended_at = least(clock_timestamp(), s.expires_at), check_at = '-infinity',
        end_reason = case when s.expires_at > clock_timestamp() then 'released' else 'expired' end
    where s.session_id = p_session_id
    returning s.* into v_session;
    return v_session.end_reason;
end
$$;
