-- fence.write_ruled(indexes, writes…, locked, wait) decides and applies the writes at these indexes of the arrays by the
-- whole rule. No resource repeats among them (22023). locked is what was locked for them (fence.lock_write_tokens), and
-- may be empty if all are puts. The answer is that of fence.write; a write is busy only
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
    p_locked text[], p_wait boolean,
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
        p_locked, p_wait);
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

-- fence.apply_operations(atomic, tokens…, operations…) → a finding per operation, in order.
--
-- Changes records under write tokens that fence.admit has ruled on, and raises the fences of the changed resources. An
-- operation passes if its token was admitted and its precondition on the record holds (step 7 of the rule). atomic: all
-- operations are applied and all fences raised, or nothing; there may be no operations. Otherwise each operation is
-- independent and has its own token.
--
-- tokens      resources, tokens, sequences, digests, and the rulings on them; no resource repeats
-- operations  token_indexes (the token of each, from 1), kinds ('put' or 'delete'), keys, values, content_types, and
--             expected: the version that the record must have; 0 none, -1 any, null does not matter. No key of a
--             resource repeats.
--
-- finding     verdict   admitted, version_mismatch, not_found (the delete of a record that does not exist), or null if
--                       the token was not admitted
--             version   the record's version: the new one if the operation was applied, otherwise the current one; 0
--                       for none
--             created   an applied put made a record
--
-- All changes of a write give one version, one more than the newest of the resource.
--
-- Invariant: an earlier statement locked the fences, so this one reads the newest data, and nobody else changes these
-- records until the end of the transaction.
create or replace function fence.apply_operations(
    p_atomic boolean,
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_digests bytea[], p_rulings fence.ruling[],
    p_token_indexes integer[], p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[],
    p_expected bigint[])
returns fence.finding[]
language plpgsql
as $$
declare
    v_findings fence.finding[];
begin
    with judged as materialized (
        select o.index, o.token_index, o.kind, o.key, p_resources[o.token_index] as resource, r.version as current,
            (p_rulings[o.token_index]).last_version + 1 as next,
            case
                when (p_rulings[o.token_index]).verdict <> 'admitted'
                    then null
                when o.expected is not null and not case o.expected
                        when 0 then r.version is null
                        when -1 then r.version is not null
                        else coalesce(r.version = o.expected, false)
                    end
                    then 'version_mismatch' -- step 7
                when o.kind = 'delete' and r.version is null
                    then 'not_found'
                else 'admitted'
            end as verdict
        from unnest(p_token_indexes, p_kinds, p_keys, p_expected) with ordinality
            as o (token_index, kind, key, expected, index)
        left join lateral (
            select r.version from fence.records r where r.resource = p_resources[o.token_index] and r.key = o.key
                limit 1
        ) r on true
    ), passed as materialized (
        select j.* from judged j
        where j.verdict = 'admitted'
            and not (p_atomic and exists (select from judged f where f.verdict is distinct from 'admitted'))
    ), put as (
        insert into fence.records as r (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p.resource, p.key, p.next, p_tokens[p.token_index], p_sequences[p.token_index], clock_timestamp(),
            p_content_types[p.index], p_values[p.index], true
        from passed p
        where p.kind = 'put'
        on conflict (resource, key) do update
        set version = excluded.version, fencing_token = excluded.fencing_token, sequence = excluded.sequence,
            updated_at = excluded.updated_at, content_type = excluded.content_type, value = excluded.value,
            created = false
    ), deleted as (
        delete from fence.records r using passed p
        where p.kind = 'delete' and r.resource = p.resource and r.key = p.key
    )
    select array_agg(
        row(j.verdict,
            case when applied.yes then j.next else coalesce(j.current, 0) end,
            applied.yes and j.kind = 'put' and j.current is null)::fence.finding
        order by j.index)
    into v_findings
    from judged j
    cross join lateral (select j.index in (select p.index from passed p) as yes) applied;

    perform fence.raise_fences(array_agg(c.resource), array_agg(c.token), array_agg(c.sequence), array_agg(c.digest), true)
    from unnest(p_resources, p_tokens, p_sequences, p_digests) with ordinality as c (resource, token, sequence, digest, n)
    where case when p_atomic
        then not exists (select from unnest(v_findings) as o (verdict) where o.verdict is distinct from 'admitted')
        else exists (select from unnest(p_token_indexes, v_findings) as o (token_index, verdict)
            where o.token_index = c.n and o.verdict = 'admitted') end;
    return v_findings;
end
$$;

-- fence.raise_fences(resources, tokens, sequences, digests, change) raises the fences to these write tokens, which
-- fence.admit has admitted: for a change of records, which gives a version, or for this transaction, which then may write
-- rows of protected tables (fence.admitted). No resource repeats; null: there are none.
create or replace function fence.raise_fences(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_digests bytea[], p_change boolean) returns void
language plpgsql
as $$
begin
    update fence.fences f
    set last_token = c.token,
        last_sequence = fence.raised_sequence(f, c.token, c.sequence),
        last_version = f.last_version + case when p_change then 1 else 0 end,
        last_digest = case when c.sequence is not null then c.digest end,
        admitted_in = case when p_change then f.admitted_in else pg_current_xact_id() end
    from unnest(p_resources, p_tokens, p_sequences, p_digests) as c (resource, token, sequence, digest)
    where f.resource = c.resource;
end
$$;

-- fence.admit_only(resources, resource) → of these resources, whose fences this transaction has raised, rows of only
-- this one may be written from now on (fence.admitted). null: rows of all of them.
create or replace function fence.admit_only(p_resources text[], p_resource text) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    update fence.fences f
    set admitted_in = case when p_resource is null or f.resource = p_resource then pg_current_xact_id() end
    where f.resource = any (p_resources)
        and coalesce(f.admitted_in = pg_current_xact_id(), false) <> (p_resource is null or f.resource = p_resource)
$$;
