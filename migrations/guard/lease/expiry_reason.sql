-- fence.expiry_reason(lease) → the end_reason of a lease that has expired: max_hold if it ran until its hold_until,
-- otherwise expired.
create or replace function fence.expiry_reason(p_lease fence.leases) returns text
language plpgsql stable
as $$
begin
    return case when fence.runs_until(p_lease) >= p_lease.hold_until then 'max_hold' else 'expired' end;
end
$$;
