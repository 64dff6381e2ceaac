-- fence.write(resources, tokens, sequences, lease_ids, digests, kinds, keys, values, content_types, expected,
-- chain_ends, wait_ms)
--
-- Decides and applies a set of independent writes in one round trip and one commit. A rejected write does not fail the
-- others.
--
-- chain_ends  The writes to one resource are a chain: they stand together, in the order in which they are decided. These
--             are the indexes of the last write of each chain.
-- wait_ms     how long to wait for a fence that another transaction has locked. null: as long as it takes. 0: not at
--             all, its writes are busy. Otherwise 55P03 is raised after that many ms, and nothing was applied. (With 0
--             as well, after 100 ms, if something else is locked: a subtree, or a fence that is being made.)
--
-- The answer is columns of indexes into the arrays (from 1), with parallel columns of values:
-- admitted, versions  the version that each admitted write gave
-- created             the puts among them that made a record
-- replayed            those that were applied before: this is their first answer again
-- busy                those that were not decided, because the fence was locked; see wait_ms
-- refused, verdicts, reasons, current_versions, granted_tokens, last_tokens, last_sequences
--     verdict          token_required, token_unknown, token_stale, lease_mismatch, lease_expired, version_mismatch,
--                      not_found (the delete of a record that does not exist)
--     current_version  of a version_mismatch, the version that the record has (0: none)
--     the rest is the fence
--
-- First it locks the fences (fence.lock_write_tokens), so that all later statements read the newest state, and nobody
-- else changes it. A fence of which a look rejects all that is sent is not locked: its writes wait for nobody.
--
-- Most chains are plain: puts with nothing but a token, to a resource of which no policy but same_token says anything
-- about writes (fence.write_policies). Then fence.rule on the fence row decides. A chain is raised as a whole, if the
-- rule admits each write on the fence as those before it leave it: the fence once, and only the last put of a key is
-- stored. The fence, the versions and the answers are those of one write after the other. So a fence that admits the
-- first numbered write of such a chain, and an unnumbered one if there is any, admits them all. Subtree leases need no
-- look: the fence has adopted the token by now (fence.lock_write_tokens).
--
-- All other chains are left as they were, and not rejected: fence.write_ruled decides them by the whole rule, the first
-- writes of all, then the second ones, and so on.
--
-- Raises 40001, with nothing applied, as fence.lock_write_tokens and fence.write_ruled do. Sent again, the writes are
-- judged by the new state.
--
-- The planner's choices are pinned: by the keys, whatever the statistics say of a table that was empty a minute ago.
create or replace function fence.write(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[], p_chain_ends integer[],
    p_wait_ms integer,
    out admitted integer[], out versions bigint[], out created integer[], out replayed integer[], out busy integer[],
    out refused integer[], out verdicts text[], out reasons text[], out current_versions bigint[],
    out granted_tokens bigint[], out last_tokens bigint[], out last_sequences bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_ignored    text;
    v_wait       boolean := p_wait_ms is distinct from 0;
    v_locked     text[];
    v_whole      boolean; -- the fences of all resources are locked
    v_policies   record;
    v_chains     boolean := cardinality(p_chain_ends) < cardinality(p_resources); -- longer ones than of one write
    -- The chains; null: the writes.
    v_resources  text[];
    v_tokens     bigint[];
    v_lowest     bigint[]; -- the sequences
    v_highest    bigint[];
    v_unnumbered boolean[]; -- has a write without a sequence
    v_lengths    integer[];
    v_digests    bytea[]; -- of the last write
    v_kinds      text[];
    v_raised     integer[]; -- the ends of the chains that were raised
    v_stored     integer[]; -- the last puts of their keys
    v_firsts     integer[]; -- the first puts of the same keys
    v_versions   bigint[]; -- the versions that are stored
    v_rows       integer;
    v_made       integer[];
    v_indexes    integer[];
    v_ruled      record;
begin
    v_ignored := fence.commit_durably();
    if p_wait_ms is not null then
        v_ignored := set_config('lock_timeout', case p_wait_ms when 0 then '100' else p_wait_ms::text end, true);
    end if;
    v_locked := fence.lock_write_tokens(p_resources, p_tokens, v_wait, true);
    v_whole := cardinality(v_locked) = cardinality(p_chain_ends);
    v_policies := fence.write_policies(p_resources);

    if v_chains then
        select array_agg(p_resources[c."end"]), array_agg(c.token), array_agg(c.lowest), array_agg(c.highest),
            array_agg(c.unnumbered), array_agg(c.length),
            array_agg(case when p_sequences[c."end"] is not null then p_digests[c."end"] end),
            array_agg(case when c.follows then 'put' end), array_agg(c."end")
        into v_resources, v_tokens, v_lowest, v_highest, v_unnumbered, v_lengths, v_digests, v_kinds, v_raised
        from (
            select max(j.index) as "end", min(j.token) as token, min(j.sequence) as lowest, max(j.sequence) as highest,
                bool_or(j.sequence is null) as unnumbered, count(*)::integer as length, bool_and(j.follows) as follows
            from (
                select w.*, w.kind = 'put' and w.lease_id is null and w.expected is null
                    and w.resource = lag(w.resource, 1, w.resource) over chain
                    and 'admitted' = fence.rule(w.token, w.sequence, w.resource = any (v_policies.same_token), false,
                        lag(w.token, 1, w.token) over chain, true, lag(w.token, 1, w.token) over chain,
                        coalesce(max(coalesce(w.sequence, 0))
                            over (chain rows between unbounded preceding and 1 preceding), -1)
                    ) as follows
                from (
                    select u.*, width_bucket(u.index - 1, p_chain_ends) as chain
                    from unnest(p_resources, p_tokens, p_sequences, p_lease_ids, p_kinds, p_expected,
                        array(select generate_subscripts(p_resources, 1)))
                        as u (resource, token, sequence, lease_id, kind, expected, index)) w
                window chain as (partition by w.chain order by w.index)) j
            group by j.chain) c;
    end if;

    with raised as (
        update fence.fences f
        set last_token = c.token,
            last_sequence = fence.raised_sequence(f, c.token, c.highest),
            last_version = f.last_version + coalesce(c.length, 1),
            last_digest = case when c.highest is not null then c.digest end
        from unnest(coalesce(v_resources, p_resources), coalesce(v_tokens, p_tokens), coalesce(v_lowest, p_sequences),
                coalesce(v_highest, p_sequences), v_unnumbered, v_lengths, coalesce(v_digests, p_digests),
                coalesce(v_kinds, p_kinds), case when not v_chains then p_lease_ids end,
                case when not v_chains then p_expected end, coalesce(v_raised, p_chain_ends))
            as c (resource, token, lowest, highest, unnumbered, length, digest, kind, lease_id, expected, "end")
        where c.kind = 'put' and c.lease_id is null and c.expected is null
            and f.resource = c.resource and (v_whole or c.resource = any (v_locked))
            and c.resource <> all (v_policies.governed)
            and fence.fast_path_admits(f, c.token, c.lowest, c.resource = any (v_policies.same_token))
            and (c.unnumbered is not true
                or fence.fast_path_admits(f, c.token, null, c.resource = any (v_policies.same_token)))
        returning c."end", f.last_version, c.length
    )
    select array_agg(r."end"), array_agg(r.last_version), array_agg(r.length) into admitted, versions, v_lengths
    from raised r;
    if v_chains then
        v_raised := admitted;
        select array_agg(w.index), array_agg(w.version) into admitted, versions
        from unnest(v_raised, versions, v_lengths) as r ("end", version, length)
        cross join lateral (
            select i, r.version - (r."end" - i) from generate_series(r."end" - r.length + 1, r."end") i
        ) w (index, version);
        select array_agg(k.first), array_agg(k.last), array_agg(k.version) into v_firsts, v_stored, v_versions
        from (
            select min(w.index) as first, max(w.index) as last, max(w.version) as version
            from unnest(admitted, versions) as w (index, version)
            group by p_resources[w.index] collate "C", p_keys[w.index] collate "C") k;
    end if;

    update fence.records r
    set version = s.version, fencing_token = p_tokens[s.index], sequence = p_sequences[s.index],
        updated_at = clock_timestamp(), content_type = p_content_types[s.index], value = p_values[s.index],
        created = false
    from unnest(coalesce(v_stored, admitted), coalesce(v_versions, versions)) as s (index, version)
    where r.resource = p_resources[s.index] and r.key = p_keys[s.index];
    get diagnostics v_rows = row_count;
    if v_rows < cardinality(coalesce(v_stored, admitted)) then
        v_made := array(
            select s.index from unnest(coalesce(v_stored, admitted)) as s (index)
            where not exists (
                select from fence.records r where r.resource = p_resources[s.index] and r.key = p_keys[s.index]));
        insert into fence.records (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p_resources[s.index], p_keys[s.index], s.version, p_tokens[s.index], p_sequences[s.index],
            clock_timestamp(), p_content_types[s.index], p_values[s.index], s.index = s.first
        from unnest(coalesce(v_stored, admitted), coalesce(v_firsts, admitted), coalesce(v_versions, versions))
            as s (index, first, version)
        where s.index = any (v_made);
        created := array(
            select s.first from unnest(coalesce(v_stored, admitted), coalesce(v_firsts, admitted)) as s (index, first)
            where s.index = any (v_made));
    end if;
    if cardinality(admitted) = cardinality(p_resources) then
        return;
    end if;

    v_raised := coalesce(v_raised, admitted, '{}');
    for v_step in 1 .. cardinality(p_resources) loop
        v_indexes := array(
            select c.before + v_step
            from (
                select e."end", coalesce(lag(e."end") over (order by e.n), 0) as before
                from unnest(p_chain_ends) with ordinality as e ("end", n)) c
            where c.before + v_step <= c."end" and c."end" <> all (v_raised));
        exit when v_indexes = '{}';
        v_ruled := fence.write_ruled(v_indexes, p_resources, p_tokens, p_sequences, p_lease_ids, p_digests, p_kinds,
            p_keys, p_values, p_content_types, p_expected, v_locked, v_wait);
        admitted := admitted || v_ruled.admitted;
        versions := versions || v_ruled.versions;
        created := created || v_ruled.created;
        replayed := replayed || v_ruled.replayed;
        busy := busy || v_ruled.busy;
        refused := refused || v_ruled.refused;
        verdicts := verdicts || v_ruled.verdicts;
        reasons := reasons || v_ruled.reasons;
        current_versions := current_versions || v_ruled.current_versions;
        granted_tokens := granted_tokens || v_ruled.granted_tokens;
        last_tokens := last_tokens || v_ruled.last_tokens;
        last_sequences := last_sequences || v_ruled.last_sequences;
    end loop;
end
$$;
