-- fence.write_one(resource, token, sequence, lease_id, digest, kind, key, value, content_type, expected, wait_ms) → the
-- answer to one write.
--
-- fence.write for one write, with less set-up: three plain statements in place of arrays, less than half the cost. They
-- are for a put with nothing but a token, to a resource without a policy about writes (fence.has_write_policy).
--
-- The fields of the answer are those of fence.write. The verdict may also be admitted or busy, and version is the one
-- that the write gave or that the record has.
create or replace function fence.write_one(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_digest bytea,
    p_kind text, p_key text, p_value bytea, p_content_type text, p_expected bigint, p_wait_ms integer,
    out verdict text, out reason text, out version bigint, out created boolean, out replayed boolean,
    out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_ignored  text;
    v_set      record;
begin
    v_ignored := fence.commit_durably();
    if p_kind = 'put' and p_lease_id is null and p_expected is null and p_wait_ms is distinct from 0 then
        if p_wait_ms > 0 then
            v_ignored := set_config('lock_timeout', p_wait_ms::text, true);
        end if;
        perform from fence.fences f
        where f.resource = p_resource and fence.fast_path_admits(f, p_token, p_sequence) for update;
        if found then
            update fence.fences f
            set last_token = p_token, last_sequence = coalesce(p_sequence, 0), last_version = f.last_version + 1,
                last_digest = case when p_sequence is not null then p_digest end
            where f.resource = p_resource
                and not (exists (select from fence.policies) and fence.has_write_policy(p_resource))
            returning f.last_version into write_one.version;
        end if;
        if found then
            update fence.records r
            set version = write_one.version, fencing_token = p_token, sequence = p_sequence,
                updated_at = clock_timestamp(), content_type = p_content_type, value = p_value, created = false
            where r.resource = p_resource and r.key = p_key;
            write_one.created := not found;
            if write_one.created then
                insert into fence.records (
                    resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
                values (p_resource, p_key, write_one.version, p_token, p_sequence, clock_timestamp(), p_content_type,
                    p_value, true);
            end if;
            verdict := 'admitted';
            reason := '';
            replayed := false;
            return;
        end if;
    end if;

    v_set := fence.write(array[p_resource], array[p_token], array[p_sequence], array[p_lease_id], array[p_digest],
        array[p_kind], array[p_key], array[p_value], array[p_content_type], array[p_expected], array[1], p_wait_ms);
    verdict := case when v_set.busy is not null then 'busy' else coalesce(v_set.verdicts[1], 'admitted') end;
    reason := coalesce(v_set.reasons[1], '');
    version := coalesce(v_set.versions[1], v_set.current_versions[1], 0);
    created := v_set.created is not null;
    replayed := v_set.replayed is not null;
    granted_token := v_set.granted_tokens[1];
    last_token := v_set.last_tokens[1];
    last_sequence := v_set.last_sequences[1];
end
$$;

-- fence.fast_path_admits(fence, token, sequence, same_token) → whether a put with nothing but a token is admitted, if
-- its policy says nothing but same_token (fence.write_policies). The planner inlines it.
create or replace function fence.fast_path_admits(
    p_fence fence.fences, p_token bigint, p_sequence bigint, p_same_token boolean default false)
returns boolean
language sql immutable
return 'admitted' = fence.rule(
        p_token, p_sequence, p_same_token, false,
        coalesce(p_fence.adopted_token, p_fence.granted_token), p_fence.open or p_fence.adopted_token is not null, p_fence.last_token, p_fence.last_sequence);
