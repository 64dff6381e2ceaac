-- fence.hold_until(lock, granted_at) → when a lease on the lock that was granted then must end, by the policy in force:
-- max_hold_ms after the grant, but not before now. Null if no policy limits it.
create or replace function fence.hold_until(p_lock text, p_granted_at timestamptz) returns timestamptz
language plpgsql
as $$
declare
    v_max_hold_ms bigint;
begin
    if not exists (select from fence.policies) then
        return null;
    end if;
    v_max_hold_ms := (select p.max_hold_ms from fence.policy_for(p_lock) p);
    return case when v_max_hold_ms is not null
        then greatest(p_granted_at + v_max_hold_ms * interval '1 millisecond', clock_timestamp()) end;
end
$$;
