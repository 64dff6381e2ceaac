-- fence.grant_next(gateway_id, lock, scope) → a row for each of the gateway's waiters for the lock that got a result,
-- in the order of the queue; one for the first that a lease blocks, and for the readers of a subtree that it does not
-- block.
--
-- A reader that waits for a subtree may be blocked by a name below: other readers need not wait for it.
--
-- outcome  granted        lease is the waiter's, which runs for left_ms
--          session_lost   its session has ended and it has left the queue, and the waiters that it blocked are woken;
--                         reason: released or expired; lease is its request
--          held           a lease blocks it, which runs for left_ms
--          external       the policy says by now that another lock service issues the tokens: it has left the queue
--          more           no waiter: the limit of one call is reached, call again
--
-- scope is subtree if any of those waiters requests a subtree. A waiter for a subtree that the caller did not know of
-- is left for the next call. A waiter whose deadline has passed is skipped: its gateway takes it out.
--
-- At most 200 get a result in one call: the fence is not locked for long, and the statement ends in time, however many
-- readers wait.
create or replace function fence.grant_next(p_gateway_id uuid, p_lock text, p_scope text)
returns table (outcome text, ticket bigint, lease fence.leases, reason text, left_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_fence   fence.fences;
    v_blocker fence.leases;
begin
    perform fence.commit_durably();
    if p_scope = 'subtree' then
        v_blocker := fence.lock_subtree(p_lock, 'shared');
    else
        perform fence.take_tree_lock(p_lock, 'node');
    end if;
    v_fence := fence.lock_fence(p_lock);
    return query select g.* from fence.grant_waiters(v_fence, null, null, p_gateway_id, p_scope, v_blocker) g;
end
$$;

-- fence.grant_waiters(fence, ended_token, ended_scope, gateway_id, scope, blocker) → the rows of fence.grant_next. The caller
-- has locked the fence, and what else the scope needs. gateway_id null: the waiters are only woken. blocker is the lease
-- that is in the way of all who wait for the subtree (fence.lock_subtree), or null.
--
-- ended_token and ended_scope are those of a lease on the lock that the caller has just ended, or null. Its fence is still
-- as it was: it passes from one token to the next, or it is closed here. Those who wait for the lock elsewhere are woken,
-- also where nobody is granted it.
--
-- It reads the queue in its order (P8), up to the first that must wait: one of another gateway is woken, if it is a writer
-- nobody after it has a turn, and if it is a reader no writer has.
create or replace function fence.grant_waiters(
    p_fence fence.fences, p_ended_token bigint, p_ended_scope text, p_gateway_id uuid, p_scope text,
    p_blocker fence.leases default null)
returns table (outcome text, ticket bigint, lease fence.leases, reason text, left_ms bigint)
language plpgsql
set enable_bitmapscan = off set enable_sort = off -- or the whole queue would be sorted for its first
as $$
declare
    v_lock          text := p_fence.resource;
    v_external      boolean;
    v_above         bigint := fence.granted_above(p_fence.resource);
    v_trees         boolean := p_scope = 'subtree' or v_above is not null;
    v_waiter        fence.waiters;
    v_next          fence.waiters; -- the first in the queue that must wait
    v_session       fence.sessions;
    v_found         record; -- mode and ended are of the newest lease
    v_blocker       fence.leases;
    v_granted       fence.leases;
    v_count         integer := 0; -- of results
    v_left          boolean := false; -- a waiter has left the queue without a lease
    v_subtree_waits boolean := false; -- a reader of the subtree was skipped: so are the others
begin
    select exists (select from fence.policies) as policies, exists (select from fence.minted_here()) as here,
        exists (select from fence.watched w where w.lock = v_lock) as watched,
        l.mode, l.ended_at is not null as ended
    into v_found
    from (select) one left join fence.leases l on l.lock = v_lock and l.fencing_token = p_fence.granted_token;
    v_external := v_found.policies and fence.has_external_tokens(v_lock);
    if p_ended_token is null then
        return query
        with left_behind as (
            delete from fence.waiters w
            where w.lock = v_lock and w.session_until <= clock_timestamp() and w.gateway_id = p_gateway_id
            returning w.*
        )
        select 'session_lost', l.ticket, fence.waiter_request(row(l.*)::fence.waiters), coalesce(s.end_reason, 'expired'),
            null::bigint
        from left_behind l left join fence.sessions s on s.session_id = l.session_id;
        v_left := found;
    end if;

    for v_waiter in select w.* from fence.live_waiters(p_gateway_id) w where w.lock = v_lock order by w.ticket loop
        if v_granted.mode = 'exclusive' or v_waiter.gateway_id is distinct from p_gateway_id then
            v_next := case when v_next.ticket is null then v_waiter else v_next end;
            exit when 'exclusive' in (v_granted.mode, v_waiter.mode) and not v_external or p_gateway_id is null;
            continue;
        end if;
        exit when v_waiter.mode = 'exclusive' and v_next.ticket is not null and not v_external;
        if v_waiter.scope = 'subtree' and p_scope <> 'subtree' then
            v_next := case when v_next.ticket is null then v_waiter else v_next end;
            exit;
        end if;
        continue when v_subtree_waits and (v_waiter.mode, v_waiter.scope) = ('shared', 'subtree');
        ticket := v_waiter.ticket;
        lease := null;
        left_ms := null;
        reason := null;
        if v_count = 200 then
            v_next := v_waiter;
            outcome := 'more';
            ticket := 0;
            return next;
            exit;
        elsif v_external then
            delete from fence.waiters w where w.ticket = v_waiter.ticket;
            v_count := v_count + 1;
            v_left := true;
            outcome := 'external';
            lease := fence.waiter_request(v_waiter);
            return next;
            continue;
        end if;

        v_blocker := case v_waiter.scope when 'subtree' then p_blocker end;
        if v_trees and fence.must_queue(v_lock, v_waiter.mode, v_waiter.scope, ticket) then
            outcome := 'behind';
        else
            if v_blocker.lock is null
                and (v_trees or fence.may_be_held(v_found.mode, v_found.ended, p_fence.granted_token, v_waiter.mode))
            then
                v_blocker := fence.expire_or_blocker(v_lock, v_waiter.mode, v_waiter.scope);
            end if;
            outcome := case when v_blocker.lock is not null then 'held' end;
        end if;
        if outcome is not null then
            if outcome = 'held' then
                left_ms := fence.left_ms(v_blocker);
                return next;
            end if;
            v_next := v_waiter;
            v_subtree_waits := true;
            continue when (v_waiter.mode, v_waiter.scope) = ('shared', 'subtree');
            exit;
        end if;

        if v_waiter.session_id is not null then
            select * into v_session from fence.sessions s where s.session_id = v_waiter.session_id for share;
            v_waiter.session_until := coalesce(v_session.ended_at, v_session.expires_at, '-infinity');
        end if;
        lease := fence.grant_lease(p_fence, fence.waiter_request(v_waiter),
            -- 0 is for a lease that was granted without a wait
            greatest(1, extract(epoch from clock_timestamp() - v_waiter.queued_at) * 1000)::bigint,
            v_above, v_found.here, v_found.policies, v_found.watched);
        delete from fence.waiters w where w.ticket = v_waiter.ticket;
        if lease.lock is null then
            v_left := true;
            outcome := 'session_lost';
            reason := nullif(fence.session_lost(v_session), 'not_found');
            lease := fence.waiter_request(v_waiter);
            return next;
            continue;
        end if;
        outcome := 'granted';
        left_ms := fence.left_ms(lease);
        return next;
        v_granted := lease;
        v_count := v_count + 1;
        p_fence.granted_token := lease.fencing_token;
        p_fence.open := lease.mode = 'exclusive';
        v_found.mode := lease.mode;
    end loop;

    if v_granted.lock is null then
        if p_ended_token is not null then
            perform fence.close_fence(v_lock, p_ended_token);
        else
            perform set_config('synchronous_commit', 'off', true);
        end if;
    end if;
    if v_left then
        perform fence.note_change(v_lock);
    elsif v_granted.lock is null and p_ended_token is null then
        return;
    end if;
    if v_trees or p_ended_scope = 'subtree' or v_left
        or v_next.ticket is not null and (v_next.mode, v_next.gateway_id) is distinct from ('exclusive', p_gateway_id)
    then
        -- At once, unless all are blocked by the lease that was granted.
        perform fence.wake(v_lock, case when p_ended_scope = 'subtree' then 'subtree' else p_scope end,
            case when v_granted.lock is null or v_left
                    or p_ended_token is not null and (v_granted.mode = 'shared' or p_ended_scope = 'subtree')
                then 0 else fence.left_ms(v_granted) end,
            case when not v_left then p_gateway_id end);
    end if;
end
$$;

-- fence.grantable_queues(known) → the queues whose first waiter nothing blocks (fence.blockers): for each its lock,
-- granted_token and since. known is the result of the count before: a queue that it has keeps its since, unless the
-- lock was granted. At most 100, the longest first.
--
-- It looks at queues for 100 ms: at the known ones, then at the others in any order, so each has its turn. A look costs
-- the more, the more names are above.
create or replace function fence.grantable_queues(p_known jsonb) returns jsonb
language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    return (
        with first as materialized (
            select f.*, k.granted_token as known_token, k.since
            from (
                select distinct on (w.lock) w.lock, w.mode, w.scope, w.ticket from fence.live_waiters() w
                order by w.lock, w.ticket) f
            left join jsonb_to_recordset(p_known) as k (lock text, granted_token bigint, since timestamptz)
                on k.lock = f.lock
            order by k.lock is null, random()
        ), deadline as materialized ( -- after all have been read
            select clock_timestamp() + interval '100 milliseconds' as at from (select count(*) from first) f
        ), free as materialized (
            select f.lock, f.known_token, f.since, coalesce((
                select o.granted_token from fence.fences o where o.resource = f.lock), 0) as granted_token
            from first f -- and nothing else: a join would be done before the clock is read
            where clock_timestamp() < (select d.at from deadline d)
                and not exists (select from fence.blockers(f.lock, f.mode, f.scope, f.ticket, 0, 1))
        )
        select coalesce(jsonb_agg(q), '[]')
        from (
            select f.lock, f.granted_token,
                case when f.known_token = f.granted_token then f.since else v_now end as since
            from free f
            order by since limit 100) q
    );
end
$$;

-- fence.next_due(gateway_id, locks, tickets) → those of these locks on which the gateway should call fence.grant_next.
-- Each comes with the gateway's first ticket in its queue. Either it may be the ticket's turn: no waiter ahead and no
-- running lease conflicts, or the policy says by now that another lock service issues the tokens. Or the ticket is not
-- in the queue any more (here is false). This covers lost notifications, and a gateway ahead in the queue that died.
--
-- If another gateway has taken over the ticket and waits with it, the request was sent again through that one. Then the
-- gateway's next ticket is looked at instead.
create or replace function fence.next_due(p_gateway_id uuid, p_locks text[], p_tickets bigint[])
returns table (lock text, here boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_queue  record;
    v_waiter fence.waiters;
begin
    for v_queue in select * from unnest(p_locks, p_tickets) as u (lock, ticket) loop
        select * into v_waiter from fence.waiters w where w.ticket = v_queue.ticket;
        lock := v_queue.lock;
        if v_waiter.gateway_id <> p_gateway_id and fence.is_waiting(v_waiter) then
            select * into v_waiter from fence.waiters w
            where w.lock = v_queue.lock and w.gateway_id = p_gateway_id order by w.ticket limit 1;
            continue when not found;
        end if;
        here := coalesce(v_waiter.gateway_id = p_gateway_id, false);
        if not here
            or fence.has_external_tokens(lock)
            or not fence.must_queue(v_waiter.lock, v_waiter.mode, v_waiter.scope, v_waiter.ticket)
                and not exists (
                    select from fence.conflicting_leases(v_waiter.lock, v_waiter.mode, v_waiter.scope) l
                    where l.expires_at > clock_timestamp())
        then
            return next;
        end if;
    end loop;
end
$$;
