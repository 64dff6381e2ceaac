-- fence.end_leases(ends, note, swept) ends leases, each for its reason. → the leases, in the order
-- of their names and tokens. One that had ended before keeps its time and gets the reason. Those that expired are
-- counted (fence.expiries), unless the caller is a sweep, which counts them itself. note is kept with the leases.
--
-- Invariant: a lease never ends later than it ran. One that has expired ended then: another may have been granted
-- since, on a name above or below (fence.expire_or_blocker).
--
-- The caller has judged the leases while it had them or their fences locked; it closes the fences, and wakes those who
-- wait. A lease that does not exist is left out. Releases end leases by themselves (fence.release_lease,
-- fence.release_leases).
create or replace function fence.end_leases(
    p_ends fence.lease_end[], p_note text default null, p_swept boolean default false)
returns setof fence.leases
language plpgsql
as $$
declare
    v_end   fence.lease_end;
    v_lease fence.leases;
begin
    for v_end in select * from unnest(p_ends) e order by e.lock collate "C", e.fencing_token loop
        update fence.leases l
        set ended_at = coalesce(l.ended_at, greatest(l.granted_at, least(clock_timestamp(), l.expires_at))),
            end_reason = v_end.reason, end_note = coalesce(p_note, l.end_note)
        where l.lock = v_end.lock and l.fencing_token = v_end.fencing_token
        returning l.* into v_lease;
        continue when not found;
        if v_end.reason = 'expired' and not p_swept then
            insert into fence.expiries default values;
        end if;
        perform fence.note_change(v_lease.lock);
        return next v_lease;
    end loop;
end
$$;

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
begin
    perform fence.commit_durably();
    -- As for a subtree, whether there is one or not: the first request for one may come while this waits.
    v_fence := fence.lock_lease(p_lock, 'subtree');
    if coalesce(v_fence.granted_token, 0) = 0 then
        outcome := 'not_found';
        return;
    end if;

    outcome := 'free';
    perform from fence.leases l where l.lock = p_lock and l.ended_at is null order by l.fencing_token for update;
    for v_ended in
        select * from fence.end_leases(array(
            select row(l.lock, l.fencing_token, 'broken')::fence.lease_end from fence.leases l
            where l.lock = p_lock and (l.ended_at is null and l.expires_at > clock_timestamp()
                or l.fencing_token = v_fence.granted_token and v_fence.open)), p_note)
    loop
        outcome := 'broken';
        lease := v_ended; -- at last the newest
    end loop;
    if outcome = 'free' then
        return;
    end if;
    perform fence.close_fence(p_lock, v_fence.granted_token);
    perform fence.wake(p_lock, case when v_fence.subtree_token is null then 'node' else 'subtree' end, 0);
    perform fence.note_action('lease_broken', p_lock, jsonb_build_object(
        'owner_id', lease.owner_id, 'fencing_token', lease.fencing_token, 'reason', p_note), p_principal, p_address);
end
$$;
