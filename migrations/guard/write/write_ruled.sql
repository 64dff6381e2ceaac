-- fence.write_ruled(indexes, writes…, covering, locked, wait) decides and applies the writes at these indexes of the
-- arrays by the whole rule. No resource repeats among them (22023). covering and locked are what was locked for them
-- (fence.lock_write_tokens), and may be empty if all are puts. The answer is that of fence.write; a write is busy only
-- if wait is false, and not if it is a replay.
--
-- The answer to a replay is as durable as that to the write (P14), and so is the reason reused: a client that sends
-- several writes again concludes from it that one before the last was applied. Without a locked fence, the commit would
-- wait for nothing.
--
-- Raises 40001 as fence.admit does, and if the record of a replayed put was replaced after it was judged.
create or replace function fence.write_ruled(
    p_indexes integer[],
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[],
    p_covering text[], p_locked text[], p_wait boolean,
    out admitted integer[], out versions bigint[], out created integer[], out replayed integer[], out busy integer[],
    out refused integer[], out verdicts text[], out reasons text[], out current_versions bigint[],
    out granted_tokens bigint[], out last_tokens bigint[], out last_sequences bigint[])
language plpgsql
as $$
declare
    v_replaced  boolean;
    v_resources text[] := array(select p_resources[i] from unnest(p_indexes) i);
    v_tokens    bigint[] := array(select p_tokens[i] from unnest(p_indexes) i);
    v_sequences bigint[] := array(select p_sequences[i] from unnest(p_indexes) i);
    v_digests   bytea[] := array(select p_digests[i] from unnest(p_indexes) i);
    v_keys      text[] := array(select p_keys[i] from unnest(p_indexes) i);
    v_rulings   fence.ruling[] := fence.admit(
        v_resources, v_tokens, v_sequences, array(select p_lease_ids[i] from unnest(p_indexes) i), v_digests,
        p_covering, p_locked, p_wait);
    v_findings  fence.finding[] := fence.apply_operations(false, v_resources, v_tokens, v_sequences, v_digests,
        v_rulings,
        array(select generate_subscripts(p_indexes, 1)), array(select p_kinds[i] from unnest(p_indexes) i), v_keys,
        array(select p_values[i] from unnest(p_indexes) i), array(select p_content_types[i] from unnest(p_indexes) i),
        array(select p_expected[i] from unnest(p_indexes) i));
begin
    if cardinality(p_indexes) > 1 and cardinality(p_indexes) > (select count(distinct r collate "C")
        from unnest(v_resources) r) then
        raise exception 'a resource has two writes in one turn' using errcode = 'invalid_parameter_value';
    end if;
    select array_agg(w.index) filter (where w.passed),
        array_agg(case when w.replayed then w.last_version else w.version end) filter (where w.passed),
        array_agg(w.index) filter (where case when w.replayed then w.first_created else w.created end),
        array_agg(w.index) filter (where w.replayed),
        array_agg(w.index) filter (where w.ruled = 'busy' and not w.replayed),
        array_agg(w.index) filter (where w.failed),
        array_agg(coalesce(w.found, w.ruled)) filter (where w.failed),
        array_agg(w.reason) filter (where w.failed),
        array_agg(w.version) filter (where w.failed),
        array_agg(w.granted_token) filter (where w.failed),
        array_agg(w.last_token) filter (where w.failed),
        array_agg(w.last_sequence) filter (where w.failed),
        bool_or(w.replaced)
    into admitted, versions, created, replayed, busy, refused, verdicts, reasons, current_versions, granted_tokens,
    last_tokens, last_sequences,
        v_replaced
    from (
        select u.*, u.replayed or coalesce(u.found, u.ruled) = 'admitted' as passed,
            not u.replayed and coalesce(u.found, u.ruled) not in ('admitted', 'busy') as failed,
            -- The last accepted write is the one that stored what is there.
            coalesce(stored.created, false) as first_created,
            u.replayed and p_kinds[u.index] = 'put' and stored.version is distinct from u.last_version as replaced
        from unnest(p_indexes, v_resources, v_keys, v_rulings, v_findings) as u (
            index, resource, key, ruled, reason, replayed, granted_token, last_token, last_sequence, last_version,
            found, version, created)
        left join lateral (
            select r.created, r.version from fence.records r
            where u.replayed and r.resource = u.resource and r.key = u.key limit 1
        ) stored on true) w;
    if v_replaced then
        raise exception 'a record was replaced while its write was judged' using errcode = 'serialization_failure';
    end if;
    if replayed is not null or 'reused' = any (reasons) then
        perform fence.confirm_read();
    end if;
end
$$;
