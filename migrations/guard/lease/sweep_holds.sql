-- fence.sweep_holds(rows_max) → done: the number of leases that ran until their hold_until and were ended; more. Their
-- fences are closed, and those of leases that had expired before, were counted then, and that nobody has replaced. See
-- fence.sweep.
--
-- From hold_until on, such a lease does not run (fence.lease_until) and its writes are rejected (fence.admit), even
-- before the sweep.
create or replace function fence.sweep_holds(p_rows_max integer, out done bigint, out more boolean)
language plpgsql
as $$
declare
    v_now   timestamptz := clock_timestamp();
    v_due   fence.leases;
    v_fence fence.fences;
    v_lease fence.leases;
    v_seen  integer := 0;
begin
    done := 0;
    for v_due in -- in any order, since this waits for no lock; what is locked is not counted, but takes time
        select l.* from fence.leases l
        where l.hold_until is not null and (l.ended_at is null or l.end_reason = 'expired')
            and l.hold_until <= v_now
            -- Its expiry, or its session's end, comes first.
            and not (l.ended_at is null and fence.expiry_reason(l) = 'expired')
        order by l.hold_until
    loop
        exit when v_seen = p_rows_max or clock_timestamp() > v_now + interval '1 second';
        perform from fence.subtrees s where s.name = v_due.lock for update skip locked;
        continue when not found and exists (select from fence.subtrees s where s.name = v_due.lock);
        select * into v_fence from fence.fences f where f.resource = v_due.lock for update skip locked;
        continue when not found;
        select * into v_lease from fence.leases l
        where l.lock = v_due.lock and l.fencing_token = v_due.fencing_token for update skip locked;
        continue when v_lease.hold_until is null or v_lease.hold_until > clock_timestamp()
            or v_lease.end_reason <> 'expired'
            or v_lease.ended_at is null and fence.expiry_reason(v_lease) = 'expired';
        v_seen := v_seen + 1;
        if v_lease.end_reason = 'expired' and not (v_fence.open and v_fence.granted_token = v_lease.fencing_token) then
            -- It may not write any more: no hold is left to watch.
            update fence.leases l set hold_until = null
            where l.lock = v_lease.lock and l.fencing_token = v_lease.fencing_token;
            continue;
        end if;
        perform fence.close_fence(v_lease.lock, v_lease.fencing_token);
        if v_lease.ended_at is not null then -- it had expired; nobody waits for it
            update fence.leases l set end_reason = 'max_hold'
            where l.lock = v_lease.lock and l.fencing_token = v_lease.fencing_token;
            continue;
        end if;
        done := done + 1;
        perform fence.end_leases(
            array[row(v_lease.lock, v_lease.fencing_token, 'max_hold')::fence.lease_end], p_swept => true);
        perform fence.wake(v_lease.lock, v_lease.scope, 0);
    end loop;
    more := v_seen = p_rows_max;
end
$$;
