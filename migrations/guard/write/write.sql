-- fence.write(resources, tokens, sequences, lease_ids, digests, kinds, keys, values, content_types, expected,
-- turn_ends, wait_ms)
--
-- Decides and applies a set of independent writes in one round trip and one commit. A rejected write does not fail the
-- others.
--
-- turn_ends Turns are decided one after another, and no resource repeats in a turn: the first turn has the first write
--           to each resource, then comes the second, and so on. These are the indexes of the last write of each turn;
--           {count} for writes that all have different resources.
-- wait_ms   how long to wait for a fence that another transaction has locked. null: as long as it takes. 0: not at all,
--           its writes are busy. Otherwise 55P03 is raised after that many ms, and nothing was applied. (With 0 as
--           well, after 100 ms, if something else is locked: a subtree, or a fence that is being made.)
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
-- Most writes take the fast path: a put with nothing but a token, to a resource of which no policy but same_token says
-- anything about writes (fence.write_policies). Then only fence.rule on the fence row decides. One statement judges and raises the fence: under READ COMMITTED an update looks again at a row for which
-- it had to wait. Subtree leases need no look: the grant of one closes the open fences below it (fence.grant_lease). The
-- fast path leaves writes that it does not admit as they were, and does not reject them: fence.write_ruled decides them
-- by the whole rule, and names the reason.
--
-- Where the resources get two writes each or more, on average, fence.write_chains comes first. It decides most of these
-- at once, instead of turn by turn.
--
-- Order of locks (fence.lock_fence): fence.lock_write_tokens locks everything first, over all turns. That is not needed
-- if all writes are plain, that is fit for the fast path while no policy exists, and there is one turn. Then the fast
-- path locks the fences of those that it admits, in the order of their names. Nothing is locked after that: the others
-- are rejected, or known as replays, which needs no lock (fence.admit).
--
-- Raises 40001, with nothing applied, if the basis of a verdict has changed: the first policy was set while the fast
-- path waited, or see fence.write_ruled. Sent again, the writes are judged by the new state.
--
-- The planner's choices are pinned: by the keys, whatever the statistics say of a table that was empty a minute ago.
create or replace function fence.write(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[], p_turn_ends integer[],
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
    v_ignored  text;
    v_from     integer; -- the first and the last index of the turn
    v_to       integer := 0;
    v_locks    record;
    v_plain    boolean; -- see the order of locks above
    v_whole    boolean := true; -- nothing was to be locked that is not
    v_covering text[] := '{}';
    v_locked   text[] := '{}';
    v_policies record;
    v_governed text[] := '{}'; -- see fence.write_policies
    v_same     text[] := '{}';
    v_chains   record;
    v_done     boolean[]; -- of each write, whether it was one of a chain; null: there was none
    v_raised   integer[]; -- the writes that the fast path admitted in this turn
    v_versions bigint[];
    v_replaced integer[];
    v_indexes  integer[];
    v_ruled    record;
begin
    v_ignored := fence.commit_durably();
    if p_wait_ms is not null then
        v_ignored := set_config('lock_timeout', case p_wait_ms when 0 then '100' else p_wait_ms::text end, true);
    end if;
    v_plain := p_wait_ms is distinct from 0 and cardinality(p_turn_ends) = 1
        and p_kinds <@ array['put'] and cardinality(array_remove(p_lease_ids, null)) = 0
            and cardinality(array_remove(p_expected, null)) = 0
        and not exists (select from fence.policies)
        and not exists (select from fence.subtrees s where s.open and s.granted_token = any (p_tokens));
    if not v_plain then
        v_locks := fence.lock_write_tokens(p_resources, p_tokens, p_wait_ms is distinct from 0);
        v_covering := v_locks.covering;
        v_locked := v_locks.locked;
        v_whole := cardinality(v_locked) = p_turn_ends[1];
        v_policies := fence.write_policies(p_resources);
        v_governed := v_policies.governed;
        v_same := v_policies.same_token;
    end if;
    if cardinality(p_resources) >= 2 * p_turn_ends[1] then
        v_chains := fence.write_chains(p_resources, p_tokens, p_sequences, p_lease_ids, p_digests, p_kinds, p_keys,
            p_values, p_content_types, p_expected, case when not v_whole then v_locked end, v_governed, v_same);
        admitted := v_chains.admitted;
        versions := v_chains.versions;
        created := v_chains.created;
        if cardinality(admitted) = cardinality(p_resources) then
            return;
        end if;
        v_done := array(select g = any (admitted) from generate_subscripts(p_resources, 1) g order by g);
    end if;
    for v_turn in 1 .. cardinality(p_turn_ends) loop
        v_from := v_to + 1;
        v_to := p_turn_ends[v_turn];
        v_raised := null;
        if p_wait_ms is distinct from 0 then
            with raised as (
                update fence.fences f
                set last_token = c.token,
                    last_sequence = fence.raised_sequence(f, c.token, c.sequence),
                    last_version = f.last_version + 1,
                    last_digest = case when c.sequence is not null then c.digest end
                from (
                    select u.*
                    from unnest(
                            p_resources[v_from:v_to], p_tokens[v_from:v_to], p_sequences[v_from:v_to],
                            p_lease_ids[v_from:v_to],
                            p_digests[v_from:v_to], p_kinds[v_from:v_to], p_keys[v_from:v_to], p_values[v_from:v_to],
                            p_content_types[v_from:v_to], p_expected[v_from:v_to], v_done[v_from:v_to])
                        with ordinality
                        as u (resource, token, sequence, lease_id, digest, kind, key, value, content_type, expected,
                            done, index)
                    where u.kind = 'put' and u.lease_id is null and u.expected is null and u.done is not true
                    order by u.resource collate "C") c
                where f.resource = c.resource and (v_whole or c.resource = any (v_locked))
                    and c.resource <> all (v_governed)
                    and fence.fast_path_admits(f, c.token, c.sequence, c.resource = any (v_same))
                returning v_from - 1 + c.index::integer as index, f.resource, c.key, f.last_version as version, c.token,
                    c.sequence, c.content_type, c.value
            ), replaced as (
                update fence.records r
                set version = p.version, fencing_token = p.token, sequence = p.sequence, updated_at = clock_timestamp(),
                    content_type = p.content_type, value = p.value, created = false
                from raised p
                where r.resource = p.resource and r.key = p.key
                returning p.index
            )
            select array_agg(p.index), array_agg(p.version), (select array_agg(r.index) from replaced r)
            into v_raised, v_versions, v_replaced
            from raised p;

            if v_raised is not null then
                if v_replaced is null or cardinality(v_replaced) < cardinality(v_raised) then
                    v_indexes := array(select p from unnest(v_raised) p
                        where p not in (select r from unnest(v_replaced) r));
                    created := created || fence.insert_records(
                        v_indexes, v_raised, v_versions, p_resources, p_tokens, p_sequences, p_keys, p_values,
                            p_content_types);
                end if;
                admitted := admitted || v_raised;
                versions := versions || v_versions;
                continue when cardinality(v_raised) = v_to - v_from + 1;
            end if;
        end if;

        v_indexes := array(select p from generate_series(v_from, v_to) p
            where v_done[p] is not true and p not in (select r from unnest(v_raised) r));
        if cardinality(v_indexes) > 0 then
            v_ruled := fence.write_ruled(v_indexes, p_resources, p_tokens, p_sequences, p_lease_ids, p_digests,
                p_kinds, p_keys, p_values, p_content_types, p_expected, v_covering, v_locked,
                    p_wait_ms is distinct from 0);
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
        end if;
    end loop;
    if v_plain and v_raised is not null and exists (select from fence.policies) then
        raise exception 'a policy came while the write waited' using errcode = 'serialization_failure';
    end if;
end
$$;

-- fence.insert_records(indexes, raised, versions, puts…) → the indexes of the puts that made a record.
--
-- Stores the puts at these indexes, which found no record to replace. raised and versions give the version of each put.
-- The fences are locked. A record that exists all the same was made while the caller's statement waited for the fence,
-- so the statement could not see it.
create or replace function fence.insert_records(
    p_indexes integer[], p_raised integer[], p_versions bigint[],
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_keys text[], p_values bytea[],
    p_content_types text[])
returns integer[]
language plpgsql
as $$
declare
    v_made text[];
begin
    with put as (
        insert into fence.records as r (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p_resources[u.index], p_keys[u.index], u.version, p_tokens[u.index], p_sequences[u.index],
            clock_timestamp(),
            p_content_types[u.index], p_values[u.index], true
        from unnest(p_raised, p_versions) as u (index, version)
        where u.index in (select p from unnest(p_indexes) p)
        on conflict (resource, key) do update
        set version = excluded.version, fencing_token = excluded.fencing_token, sequence = excluded.sequence,
            updated_at = excluded.updated_at, content_type = excluded.content_type, value = excluded.value,
            created = false
        returning r.resource, r.created
    )
    select array_agg(put.resource) filter (where put.created) into v_made from put;
    return array(select p from unnest(p_indexes) p where p_resources[p] in (select m from unnest(v_made) m));
end
$$;
