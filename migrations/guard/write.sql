-- fence.write(resources, tokens, sequences, lease_ids, digests, kinds, keys, values, content_types, expected)
-- → a row per write: its place in the arrays (from 1) and its verdict.
--
-- Decides and applies a set of independent writes in one round trip and one commit. A rejected write does not
-- fail its neighbours. Two writes to one resource are judged in the order given: such a set is taken apart into sets in
-- which no resource repeats, of the first write of every resource, the second, and so on.
--
-- verdict       admitted, token_required, token_unknown, token_stale, lease_mismatch, lease_expired,
--               version_mismatch, not_found (the delete of what is not there)
-- version       the version that the write gave; of a version_mismatch the one that stands (0: none)
-- created       the put made a record that was not there
-- replayed      the write was applied before: this is its first answer again
--
-- The planner's choices are pinned: by the keys, whatever the statistics say of a table that was empty a minute ago.
create or replace function fence.write(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[])
returns table (
    place integer, verdict text, reason text, version bigint, created boolean, replayed boolean,
    granted_token bigint, last_token bigint, last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_places   integer[];
    v_rulings  fence.ruling[];
    v_findings fence.finding[];
begin
    if cardinality(p_resources) > 1 and cardinality(p_resources) > (select count(distinct r) from unnest(p_resources) r) then
        for v_places in
            select array_agg(t.place order by t.place)
            from (
                select u.place, row_number() over (partition by u.resource order by u.place) as turn
                from unnest(p_resources) with ordinality as u (resource, place)) t
            group by t.turn
            order by t.turn
        loop
            return query
            select v_places[w.place], w.verdict, w.reason, w.version, w.created, w.replayed,
                w.granted_token, w.last_token, w.last_sequence
            from fence.write(
                array(select p_resources[i] from unnest(v_places) i), array(select p_tokens[i] from unnest(v_places) i),
                array(select p_sequences[i] from unnest(v_places) i), array(select p_lease_ids[i] from unnest(v_places) i),
                array(select p_digests[i] from unnest(v_places) i), array(select p_kinds[i] from unnest(v_places) i),
                array(select p_keys[i] from unnest(v_places) i), array(select p_values[i] from unnest(v_places) i),
                array(select p_content_types[i] from unnest(v_places) i),
                array(select p_expected[i] from unnest(v_places) i)) w;
        end loop;
        return;
    end if;

    v_places := array(select generate_subscripts(p_resources, 1));
    v_rulings := fence.admit(p_resources, p_tokens, p_sequences, p_lease_ids, p_digests);
    v_findings := fence.change(false, p_resources, p_tokens, p_sequences, p_digests, v_rulings,
        v_places, p_kinds, p_keys, p_values, p_content_types, p_expected);
    return query
    select w.place,
        case when w.replayed then 'admitted' else coalesce(w.found, w.ruled) end,
        case when w.replayed then '' else w.reason end,
        case when w.replayed then w.last_version else w.version end,
        case when w.replayed then w.last_created else w.created end,
        w.replayed, w.granted_token, w.last_token, w.last_sequence
    from unnest(v_places, v_rulings, v_findings)
        as w (place, ruled, reason, replayed, granted_token, last_token, last_sequence, last_version, last_created,
            found, version, created);
end
$$;
