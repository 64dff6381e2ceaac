-- fence.claim_leases(table, locks, owner_id, ttl_ms, lease_id) → the leases that are granted on locks, which fence.claim
-- has found, each once or more: exclusive ones with this lease_id. Others are left out: those that are held, or that wait;
-- those for which it would have to wait for another transaction; and those for which this transaction can take no more
-- gates (fence.within_gates).
--
-- It makes fences without a bound (fence.check_new_fence), because the sweep forgets them (fence.sweep_claims). It knows
-- them by the lease_id, which is that of a claim (fence.is_claim), and by their metadata.
--
-- Raises what fence.acquire raises, except 54000.
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
    v_request   fence.leases;
begin
    perform fence.check_lease_call(p_locks[1], p_owner_id);
    perform fence.check_ttl(p_ttl_ms);
    perform fence.require(v_count <= 1000, format('a claim has %s locks, the limit is 1000', v_count));
    perform fence.require(fence.is_claim(p_lease_id), 'lease_id is not that of a claim');
    perform fence.check_use(l), fence.check_provider(l) from unnest(v_found) l;
    v_locks := fence.try_gates(fence.within_gates(v_found));

    v_made := array(
        select l from unnest(v_locks) l where (select true from fence.fences f where f.resource = l limit 1) is null
        order by l collate "C");
    if v_made <> '{}' then
        v_made := fence.make_fences(v_made);
    end if;

    v_leases := array(
        select l from fence.acquire_leases(v_locks, array_fill(p_owner_id, array[v_count]),
            array_fill(v_principal, array[v_count]), array_fill('exclusive'::text, array[v_count]),
            array_fill(p_ttl_ms, array[v_count]), '{}', array_fill(v_metadata::text, array[v_count]), p_lease_id) l);
    perform set_config('synchronous_commit', v_setting, true);
    -- What is not decided by that: a lease that expired, for example.
    for v_request in
        select r.* from fence.fences f, fence.lease_request(
            f.resource, p_owner_id, 'exclusive', 'node', p_ttl_ms, null, null, v_metadata, v_principal) r
        where f.resource = any (v_locks) and f.resource not in (select l.lock from unnest(v_leases) l)
        order by f.resource for update of f skip locked
    loop
        v_request.lease_id := p_lease_id;
        v_leases := v_leases || fence.acquire_at_once(v_request);
    end loop;
    perform set_config('synchronous_commit', v_setting, true);
    if cardinality(v_leases) > 0 then
        perform fence.commit_durably();
    end if;
    delete from fence.fences f
    where f.resource = any (v_made) and f.granted_token = 0 and f.last_token = 0;
    return query select l.lock::text, l.fencing_token::bigint, l.expires_at from unnest(v_leases) l;
end
$$;
