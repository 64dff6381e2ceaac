-- fence.hand_over(lock, owner_id, lease_id, fencing_token, gateway_id) is fence.release_lease, and then
-- fence.grant_next for the waiters of the gateway, in one transaction: the lock passes from its holder to the next
-- owner with one commit. → a row for each row of fence.grant_next, with the result of the release; or one without.
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

-- fence.pass_lease(lock, owner_id, lease_id, fencing_token, gateway_id) does what fence.hand_over does where nothing
-- but the holder and the first two waiters need be looked at: the lease is live, for the name alone, in no session; so
-- is the request of the first waiter, which waits at the gateway; both are exclusive; nobody watches the lock, and it
-- has no policy and no subtree lease above. → the lease of that waiter, its ticket, and the age of the one that was
-- released. Or nothing, and nothing was changed.
--
-- The fence passes from one token to the next without being closed between: nobody else sees it before the commit.
--
-- Raises LF002 from mint, LF006 from jump.
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
begin
    perform fence.take_tree_lock(p_lock, 'node');
    select greatest(f.granted_token, f.last_token) into v_newest from fence.fences f
    where f.resource = p_lock and f.subtree_token is null for update;
    if not found or fence.has_subtrees(p_lock) or exists (select from fence.watched w where w.lock = p_lock and w.until > clock_timestamp())
        or exists (select from fence.policies) and exists (select from fence.policy_for(p_lock))
    then
        return;
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
        and (l.lease_id, l.owner_id, l.mode) = (p_lease_id, p_owner_id, 'exclusive')
        and l.ended_at is null and l.session_id is null and not l.kept
        and l.expires_at > clock_timestamp()
    returning l.ended_at, l.ended_at - l.granted_at into v_now, age;
    if not found then
        return;
    end if;
    lease := fence.waiter_request(v_first);
    lease.granted_at := v_now;
    lease.waited_ms := greatest(1, extract(epoch from v_now - v_first.queued_at) * 1000);
    lease.expires_at := v_now + v_first.ttl_ms * interval '1 millisecond';
    lease.check_at := lease.expires_at;
    lease := fence.grant(lease, v_newest);
    delete from fence.waiters w where w.ticket = v_first.ticket;
    ticket := v_first.ticket;
    if v_next.ticket is not null and (v_next.mode, v_next.gateway_id) is distinct from ('exclusive', p_gateway_id) then
        perform fence.wake(p_lock, 'node', fence.left_ms(lease), p_gateway_id);
    end if;
end
$$;

-- fence.plain_locks(locks) → those of the locks about which many can be decided in one statement: nobody waits for the
-- lock, nobody watches it, and no subtree lease was ever requested for its name or one above it.
--
-- The caller holds the tree locks (fence.try_tree_locks) and the fences, which keep a waiter and a subtree from coming.
create or replace function fence.plain_locks(p_locks text[]) returns text[]
language plpgsql
as $$
begin
    return array(
        select l from unnest(p_locks) l
        -- offset 0: each is looked up by its name, whatever the statistics say of a table that was empty a minute ago
        where not exists (select from fence.waiters w where w.lock = l offset 0)
            and not exists (select from fence.watched w where w.lock = l and w.until > clock_timestamp() offset 0)
            and not exists (select from fence.fences f where f.resource = l and f.subtree_token is not null offset 0)
            and not fence.has_subtrees(l));
end
$$;
