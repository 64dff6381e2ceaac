-- fence.expiry_reason(lease) → the end_reason of a lease that has run out: max_hold where it ran until its hold_until, otherwise expired.
create or replace function fence.expiry_reason(p_lease fence.leases) returns text
language plpgsql stable
as $$
begin
    return case when fence.runs_until(p_lease) >= p_lease.hold_until then 'max_hold' else 'expired' end;
end
$$;
