-- fence.claim_leases(table, locks, owner_id, ttl_ms, lease_id) → the leases that are granted on locks, which fence.claim
-- has found, each once or more: exclusive ones with this lease_id. Others are left out: those that are held, or that wait;
-- those whose fence another transaction has locked, for which it does not wait; and what needs more than 64 gates
-- (fence.check_gates).
--
-- It makes fences without a bound (fence.check_new_fence), because the sweep forgets them (fence.sweep_claims).
--
-- Raises what fence.acquire raises.
create or replace function fence.claim_leases(
    p_table regclass, p_locks text[], p_owner_id text, p_ttl_ms integer, p_lease_id uuid)
returns table (resource text, fencing_token bigint, expires_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_setting   text := current_setting('synchronous_commit');
    v_principal text := 'sql:' || session_user;
    v_metadata  json := json_build_object('table', fence.name_of_table(p_table));
    v_found     text[] := array(
        select l from unnest(p_locks) with ordinality as u (l, n) group by l order by min(n));
    v_count     integer := cardinality(v_found);
    v_locks     text[];
    v_made      text[];
    v_leases    fence.leases[];
    v_lock      text;
    v_answer    record;
begin
    perform fence.check_lease_call(p_locks[1], p_owner_id);
    perform fence.check_ttl(p_ttl_ms);
    perform fence.check_gates(p_locks[1]);
    perform fence.check_use(l), fence.check_provider(l) from unnest(v_found) l;
    v_locks := fence.try_gates(
        v_found[:fence.count_within_gates(v_found, array_fill('node'::text, array[v_count]), 64)]);

    with made as (
        insert into fence.fences (resource)
        -- An INSERT that conflicts with a fence would wait for the transaction that has changed it.
        select l from unnest(v_locks) l
        where (select true from fence.fences f where f.resource = l limit 1) is null
        order by l collate "C"
        on conflict do nothing
        returning resource
    )
    select array_agg(m.resource) into v_made from made m;

    v_leases := array(
        select l from fence.acquire_leases(v_locks, array_fill(p_owner_id, array[v_count]),
            array_fill(v_principal, array[v_count]), array_fill('exclusive'::text, array[v_count]),
            array_fill(p_ttl_ms, array[v_count]), '{}', array_fill(v_metadata::text, array[v_count]), p_lease_id) l);
    perform set_config('synchronous_commit', v_setting, true);
    -- What is not decided by that: a lease that expired, for example.
    foreach v_lock in array array(
        select f.resource from fence.fences f
        where f.resource = any (v_locks) and f.resource not in (select l.lock from unnest(v_leases) l)
        order by f.resource for update skip locked)
    loop
        v_answer := fence.acquire_lease(fence.lease_request(v_lock, p_owner_id, 'exclusive', 'node', p_ttl_ms, null, null,
            v_metadata, v_principal), 0, null);
        perform fence.check_outcome(v_answer.outcome);
        if v_answer.outcome = 'granted' then
            update fence.leases l set lease_id = p_lease_id
            where l.lock = v_lock and l.fencing_token = (v_answer.lease).fencing_token;
            v_leases := v_leases || v_answer.lease;
        end if;
    end loop;
    perform set_config('synchronous_commit', v_setting, true);
    if cardinality(v_leases) > 0 then
        perform fence.commit_durably();
    end if;
    if v_made is not null then
        perform fence.note_unused(array_agg(u.m))
        from (select m from unnest(v_made) m except select l.lock from unnest(v_leases) l) u having count(*) > 0;
    end if;
    return query select l.lock::text, l.fencing_token::bigint, l.expires_at from unnest(v_leases) l;
end
$$;
