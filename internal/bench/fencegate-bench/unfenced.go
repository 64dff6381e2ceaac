//go:build unix

package main

// unfencedWrite changes the records as the fast path of fence.write does, turn after turn, and looks at no fence.
const unfencedWrite = `
create or replace function fence.write($arguments) returns $result language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_from     integer;
    v_to       integer := 0;
    v_replaced integer[];
    v_versions bigint[];
    v_missing  integer[];
begin
    for v_turn in 1 .. cardinality(p_turn_ends) loop
        v_from := v_to + 1;
        v_to := p_turn_ends[v_turn];
        with replaced as (
            update fence.records r
            set version = r.version + 1, fencing_token = c.token, sequence = c.sequence, updated_at = clock_timestamp(),
                content_type = c.content_type, value = c.value, created = false
            from (
                select u.*
                from unnest(p_resources[v_from:v_to], p_tokens[v_from:v_to], p_sequences[v_from:v_to], p_lease_ids[v_from:v_to],
                        p_digests[v_from:v_to], p_kinds[v_from:v_to], p_keys[v_from:v_to], p_values[v_from:v_to],
                        p_content_types[v_from:v_to], p_expected[v_from:v_to]) with ordinality
                    as u (resource, token, sequence, lease_id, digest, kind, key, value, content_type, expected, index)
                where u.kind = 'put' and u.lease_id is null and u.expected is null
                order by u.resource collate "C") c
            where r.resource = c.resource and r.key = c.key
            returning v_from - 1 + c.index::integer as index, r.version
        )
        select array_agg(p.index), array_agg(p.version) into v_replaced, v_versions from replaced p;
        admitted := admitted || v_replaced;
        versions := versions || v_versions;
        continue when cardinality(v_replaced) = v_to - v_from + 1;

        v_missing := array(select p from generate_series(v_from, v_to) p where p not in (select r from unnest(v_replaced) r));
        admitted := admitted || v_missing;
        versions := versions || array_fill(1::bigint, array[cardinality(v_missing)]);
        created := created || fence.insert_records(
            v_missing, v_missing, array_fill(1::bigint, array[cardinality(v_missing)]),
            p_resources, p_tokens, p_sequences, p_keys, p_values, p_content_types);
    end loop;
end
$$`
