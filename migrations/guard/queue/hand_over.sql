-- fence.hand_over(lock, owner_id, lease_id, fencing_token, gateway_id) is fence.release_lease, and then fence.grant_next
-- for the waiters of the gateway, in one transaction: the lock passes from its holder to the next owner with one commit.
-- → a row for each row of fence.grant_next, with the result of the release; or one without.
--
-- None of the waiters requests a subtree: the locks for that would have to be taken before those for the release.
create or replace function fence.hand_over(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_gateway_id uuid)
returns table (
    status text, mode text, age_ms double precision,
    outcome text, ticket bigint, lease fence.leases, reason text, left_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_setting text := fence.commit_durably();
    v_ended   record;
    v_passed  record;
begin
    v_passed := fence.pass_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token, p_gateway_id);
    if v_passed.ticket is not null then
        status := 'released';
        mode := 'exclusive';
        age_ms := extract(epoch from v_passed.age) * 1000;
        outcome := 'granted';
        ticket := v_passed.ticket;
        lease := v_passed.lease;
        left_ms := ceil(extract(epoch from lease.expires_at - clock_timestamp()) * 1000);
        return next;
        return;
    end if;
    v_ended := fence.end_lease(p_lock, p_owner_id, p_lease_id, p_fencing_token, p_gateway_id);
    return query
    select v_ended.status, v_ended.mode, v_ended.age_ms, g.outcome, g.ticket, g.lease, g.reason, g.left_ms
    from (select 1) one left join fence.grant_next(p_gateway_id, p_lock, 'node') g on true;
    perform set_config('synchronous_commit', v_setting, true); -- the release is durable, whatever was granted
end
$$;
