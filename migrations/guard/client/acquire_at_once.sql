-- fence.acquire_at_once(request) → the leases that fence.acquire_lease grants to the request as a try: one; or none, also
-- where it would wait for another transaction for more than 1 ms. For fence.claim_leases. Raises what fence.acquire_lease
-- and fence.check_outcome raise.
create or replace function fence.acquire_at_once(p_request fence.leases) returns fence.leases[]
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1ms'
as $$
declare
    v_answer record;
begin
    v_answer := fence.acquire_lease(p_request, 0, null);
    perform fence.check_outcome(v_answer.outcome);
    return case when v_answer.outcome = 'granted' then array[v_answer.lease] else '{}' end;
exception
    when lock_not_available or deadlock_detected then
        return '{}';
end
$$;
