-- fence.break(lock, note, principal, address) → one row: outcome broken and the lease that was ended, of several the newest (also an
-- expired one that may still write); or outcome free if there is none and nobody may write; or not_found. The fence is
-- closed. See fence.note_action for principal and address.
create or replace function fence.break(
    p_lock text, p_note text, p_principal text default null, p_address text default null,
    out outcome text, out lease fence.leases)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_fence fence.fences;
    v_ended fence.leases;
    v_scope text := case
        when exists (select from fence.subtrees s where s.name = p_lock) then 'subtree' else 'node' end;
begin
    perform fence.commit_durably();
    perform fence.lock_lease(p_lock, v_scope);
    select * into v_fence from fence.fences f where f.resource = p_lock;
    if not found or v_fence.granted_token = 0 then
        outcome := 'not_found';
        return;
    end if;

    outcome := 'free';
    for v_ended in select * from fence.leases l where l.lock = p_lock and l.ended_at is null
        order by l.fencing_token for update loop
        perform from fence.sessions s where s.session_id = v_ended.session_id for share;
    end loop;
    for v_ended in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token, 'broken')::fence.lease_end from fence.leases l
            where l.lock = p_lock and (l.ended_at is null and fence.runs_until(l) > clock_timestamp()
                or l.fencing_token = v_fence.granted_token and v_fence.open
                    and coalesce(l.hold_until > clock_timestamp(), true))), p_note)
    loop
        outcome := 'broken';
        lease := v_ended; -- at last the newest
    end loop;
    if outcome = 'free' then
        return;
    end if;
    perform fence.close_fence(p_lock, v_fence.granted_token);
    update fence.subtrees s set open = false where s.name = p_lock;
    perform fence.wake(p_lock, v_scope, 0);
    lease.expires_at := fence.runs_until(lease);
    perform fence.note_action('lease_broken', p_lock, jsonb_build_object(
        'owner_id', lease.owner_id, 'fencing_token', lease.fencing_token, 'reason', p_note), p_principal, p_address);
end
$$;
