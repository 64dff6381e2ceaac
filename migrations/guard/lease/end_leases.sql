-- fence.end_leases(ends, note, swept) ends leases, each for its reason, and publishes that. → the leases, in the order
-- of their names and tokens. One that had ended before keeps its time and gets the reason. Those that expired are
-- counted (fence.expiries), unless the caller is a sweep, which counts them itself. note is kept with the leases.
--
-- Invariant: a lease never ends later than it ran. One that has expired ended then: another may have been granted
-- since, on a name above or below (fence.expire_or_blocker).
--
-- The caller has judged the leases while it had them or their fences locked; it closes the fences, and wakes those who
-- wait. A lease that does not exist is left out. What ends a lease that concerns nobody else does it by itself, with all
-- else (fence.release_one, fence.release_leases, fence.pass_lease).
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
        set ended_at = coalesce(l.ended_at, greatest(l.granted_at, least(clock_timestamp(), fence.runs_until(l)))),
            end_reason = v_end.reason, end_note = coalesce(p_note, l.end_note)
        where l.lock = v_end.lock and l.fencing_token = v_end.fencing_token
        returning l.* into v_lease;
        continue when not found;
        if v_end.reason in ('expired', 'max_hold') and not p_swept then
            insert into fence.expiries default values;
        end if;
        perform fence.publish_lease_event(v_lease, case v_end.reason when 'max_hold' then 'expired' else v_end.reason end,
            case v_end.reason when 'max_hold' then 'max_hold' when 'broken' then p_note end);
        return next v_lease;
    end loop;
end
$$;
