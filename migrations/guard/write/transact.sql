-- fence.transact(tokens…, operations…) → one row: the verdict on an atomic change under one or more write tokens, all
-- or none.
--
-- tokens      resources, tokens, sequences, lease_ids, and one digest of the whole change; no resource repeats
-- operations  kinds, token_indexes (the token of each, from 1), keys, values, content_types, expected, as in
--             fence.apply_operations
--
-- verdict     admitted, or the verdict on the first token or else operation that was rejected
-- index       the index of that token (of_token) or operation
-- versions    of an admitted change, the version that each operation gave
-- current     of a version_mismatch, the version that the record has (0: none)
-- replayed    the change was applied before, on every one of its fences: this is its first answer again
--
-- Raises 40001 as fence.admit does.
create or replace function fence.transact(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digest bytea,
    p_kinds text[], p_token_indexes integer[], p_keys text[], p_values bytea[], p_content_types text[],
    p_expected bigint[],
    out verdict text, out reason text, out index integer, out of_token boolean, out versions bigint[],
        out current bigint,
    out replayed boolean, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_digests  bytea[] := array_fill(p_digest, array[cardinality(p_resources)]);
    v_locks    record := fence.lock_write_tokens(p_resources, p_tokens, true);
    v_rulings  fence.ruling[] := fence.admit(
        p_resources, p_tokens, p_sequences, p_lease_ids, v_digests, v_locks.covering, v_locks.locked, true);
    v_findings fence.finding[];
begin
    perform fence.commit_durably();
    replayed := (select bool_and(r.replayed) from unnest(v_rulings) r);
    versions := array(
        select (v_rulings[o.token_index]).last_version + case when replayed then 0 else 1 end
        from unnest(p_token_indexes) with ordinality as o (token_index, index) order by o.index);
    if replayed then
        verdict := 'admitted';
        return;
    end if;

    select r.index, r.verdict, r.reason, r.granted_token, r.last_token, r.last_sequence
    into index, verdict, reason, granted_token, last_token, last_sequence
    from unnest(v_rulings) with ordinality as r (
        verdict, reason, replayed, granted_token, last_token, last_sequence, last_version, index)
    where r.verdict <> 'admitted' order by r.index limit 1;
    of_token := found;
    if of_token then
        return;
    end if;

    v_findings := fence.apply_operations(true, p_resources, p_tokens, p_sequences, v_digests, v_rulings,
        p_token_indexes, p_kinds, p_keys, p_values, p_content_types, p_expected);
    index := (select min(i) from generate_subscripts(v_findings, 1) i where (v_findings[i]).verdict <> 'admitted');
    verdict := coalesce((v_findings[index]).verdict, 'admitted');
    current := (v_findings[index]).version;
end
$$;
