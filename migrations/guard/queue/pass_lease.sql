-- fence.pass_lease(lock, owner_id, lease_id, fencing_token, gateway_id) does what fence.hand_over does where nothing but
-- the holder and the first two waiters need be looked at: the lease is live, for the name alone, in no session; so is the
-- request of the first waiter, which waits at the gateway; both are exclusive; nobody watches the lock, and it has no
-- policy and no subtree lease above. → the lease of that waiter, its ticket, and the age of the one that was released.
-- Or nothing, and nothing was changed.
--
-- The fence passes from one token to the next without being closed between: nobody else sees it before the commit.
--
-- Raises LF002 from mint, LF006 from jump, and 40001 where it has to be called again.
create or replace function fence.pass_lease(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint, p_gateway_id uuid,
    out lease fence.leases, out ticket bigint, out age interval)
language plpgsql
set enable_bitmapscan = off set enable_sort = off -- or the whole queue would be sorted for its first
as $$
declare
    v_newest  bigint;
    v_waiters fence.waiters[];
    v_first   fence.waiters;
    v_next    fence.waiters;
    v_now     timestamptz;
    v_until   timestamptz;
begin
    if fence.has_subtrees(p_lock) then
        return;
    end if;
    perform fence.lock_gate(p_lock, 'node');
    select greatest(f.granted_token, f.last_token) into v_newest from fence.fences f
    where f.resource = p_lock for update;
    if not found or exists (select from fence.watched w where w.lock = p_lock and w.until > clock_timestamp())
        or exists (select from fence.policies) and exists (select from fence.policy_for(p_lock))
    then
        return;
    end if;
    if fence.has_subtrees(p_lock) then -- since a moment: the row of a subtree is locked before the fence
        raise exception 'a subtree lease is requested for the first time' using errcode = '40001';
    end if;
    v_waiters := array(select w from fence.live_waiters() w where w.lock = p_lock order by w.ticket limit 2);
    v_first := v_waiters[1];
    v_next := v_waiters[2];
    if (v_first.mode, v_first.scope, v_first.gateway_id) is distinct from ('exclusive', 'node', p_gateway_id)
        or v_first.session_id is not null
    then
        return;
    end if;
    perform from fence.waiters w where w.ticket = v_first.ticket and w.gateway_id = p_gateway_id for update;
    if not found then
        return;
    end if;
    perform fence.jump();

    update fence.leases l
    set ended_at = least(clock_timestamp(), l.expires_at), end_reason = 'released'
    where l.lock = p_lock and l.fencing_token = p_fencing_token
        and (l.lease_id, l.owner_id, l.mode, l.scope) = (p_lease_id, p_owner_id, 'exclusive', 'node')
        and l.ended_at is null and l.session_id is null and l.hold_until is null and not l.kept
        and l.expires_at > clock_timestamp()
    returning l.ended_at, l.ended_at - l.granted_at into v_now, age;
    if not found then
        return;
    end if;
    v_until := v_now + v_first.ttl_ms * interval '1 millisecond';
    lease := (select g from fence.grant(array[row(
        p_lock, fence.mint(v_newest), gen_random_uuid(), v_first.owner_id, v_first.principal, v_first.mode, 'node',
        v_first.ttl_ms, null, v_now, greatest(1, extract(epoch from v_now - v_first.queued_at) * 1000), v_until, null,
        v_until, v_first.request_id, v_first.metadata)::fence.new_lease]) g);
    delete from fence.waiters w where w.ticket = v_first.ticket;
    ticket := v_first.ticket;
    if v_next.ticket is not null and (v_next.mode, v_next.gateway_id) is distinct from ('exclusive', p_gateway_id) then
        perform fence.wake(p_lock, 'node', fence.left_ms(lease), p_gateway_id);
    end if;
end
$$;
