-- fence.acquire_one(lock, owner_id, principal, mode, ttl_ms, request_id, metadata) is fence.acquire_leases for one lock,
-- at four fifths of its cost: each statement reads or changes one row by its key. → the lease, or no row where the request
-- was not decided.
--
-- Where there are policies or subtrees, or where tokens have to jump (fence.jump), it leaves the request to
-- fence.acquire_leases. Its other conditions are the same.
--
-- Raises LF002 from mint, LF006 from jump.
create or replace function fence.acquire_one(
    p_lock text, p_owner_id text, p_principal text, p_mode text, p_ttl_ms integer, p_request_id text, p_metadata text)
returns setof fence.leases
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
declare
    v_setting text := fence.commit_durably();
    v_granted bigint;
    v_newest  bigint;
    v_special boolean;
    v_free    boolean;
    v_now     timestamptz;
    v_until   timestamptz;
begin
    select f.granted_token, greatest(f.granted_token, f.last_token) into v_granted, v_newest from fence.fences f
    where f.resource = p_lock and (f.granted_token > 0 or f.last_token > 0) and fence.try_gate(p_lock)
    for update skip locked;
    if found then
        select
            exists (select from fence.policies) or exists (select from fence.subtrees)
                or not exists (select from fence.minted_here()),
            not exists (select from fence.waiters w where w.lock = p_lock)
                and not exists (select from fence.watched w where w.lock = p_lock and w.until > clock_timestamp())
                and not exists (
                    select from fence.leases o where o.lock = p_lock collate "POSIX" and o.request_id = p_request_id)
                and coalesce((
                    select case o.mode when 'exclusive' then o.ended_at is not null else p_mode = 'shared' end
                        and not o.kept -- fence.grant_lease changes it
                    from fence.leases o where o.lock = p_lock and o.fencing_token = v_granted
                ), v_granted = 0)
        into v_special, v_free;
        if v_special then
            return query select * from fence.acquire_leases(array[p_lock], array[p_owner_id], array[p_principal],
                array[p_mode], array[p_ttl_ms], array[p_request_id], array[p_metadata]);
            return;
        end if;
        if v_free then
            v_now := clock_timestamp(); -- after the snapshot, see fence.acquire_leases
            v_until := v_now + p_ttl_ms * interval '1 millisecond';
            return query select * from fence.grant(array[row(
                p_lock, fence.mint(v_newest), gen_random_uuid(), p_owner_id, p_principal, p_mode, 'node', p_ttl_ms, null,
                v_now, 0, v_until, null, v_until, p_request_id, p_metadata)::fence.new_lease]);
            return;
        end if;
    end if;
    perform fence.note_jump(); -- before the request is decided otherwise
    perform set_config('synchronous_commit', 'off', true);
end
$$;
