-- fence.write_chains(writes…, locked, governed, same_token) → the writes that it admitted and applied, as fence.write
-- answers them.
--
-- Decides, in one statement for any number of turns, the resources of which all writes are a chain: puts with nothing
-- but a token, each of which fence.rule admits on the fence as the writes before it leave it. So a fence that admits
-- the first numbered write of a chain, and an unnumbered one if there is any, admits them all. It is raised once, and
-- only the last put of a key is stored; the fence, the versions and the answers are those of one write after the other.
--
-- The other writes are left as they were, and not rejected. See fence.write_policies for governed and same_token.
--
-- Invariant: an earlier statement locked the fences in locked (null: of all resources). So this one reads the newest
-- records, and nobody else changes these until the end of the transaction.
create or replace function fence.write_chains(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[],
    p_locked text[], p_governed text[], p_same_token text[],
    out admitted integer[], out versions bigint[], out created integer[])
language plpgsql
as $$
declare
    v_stored   integer[]; -- the last puts of their keys
    v_firsts   integer[]; -- the first puts of the same keys
    v_versions bigint[];
    v_replaced integer[];
begin
    with judged as (
        select u.*, row_number() over chain as position,
            u.kind = 'put' and u.lease_id is null and u.expected is null
                and 'admitted' = fence.rule(u.token, u.sequence, u.resource = any (p_same_token), false,
                    lag(u.token, 1, u.token) over chain, true, lag(u.token, 1, u.token) over chain,
                    coalesce(max(coalesce(u.sequence, 0)) over (chain rows between unbounded preceding and 1 preceding),
                        -1)
                ) as follows
        from unnest(p_resources, p_tokens, p_sequences, p_lease_ids, p_kinds, p_keys, p_expected) with ordinality
            as u (resource, token, sequence, lease_id, kind, key, expected, index)
        window chain as (partition by u.resource collate "C" order by u.index)
    ), raised as (
        update fence.fences f
        set last_token = c.token,
            last_sequence = fence.raised_sequence(f, c.token, c.last),
            last_version = f.last_version + c.length,
            last_digest = case when p_sequences[c.newest] is not null then p_digests[c.newest] end
        from (
            select j.resource collate "C" as resource, min(j.token) as token,
                min(j.sequence) as first, max(coalesce(j.sequence, 0)) as last, bool_or(j.sequence is null) as unnumbered,
                count(*) as length, max(j.index)::integer as newest,
                array_agg(j.index::integer) as indexes, array_agg(j.key) as keys, array_agg(j.position) as positions
            from judged j
            group by 1
            having bool_and(j.follows)) c
        where f.resource = c.resource and (p_locked is null or c.resource = any (p_locked))
            and c.resource <> all (p_governed)
            and fence.fast_path_admits(f, c.token, c.first, c.resource = any (p_same_token))
            and (not c.unnumbered or fence.fast_path_admits(f, c.token, null, c.resource = any (p_same_token)))
        returning f.resource, f.last_version - c.length as version, c.indexes, c.keys, c.positions
    ), passed as materialized (
        select r.resource, u.key, u.index, r.version + u.position as version
        from raised r, unnest(r.indexes, r.keys, r.positions) as u (index, key, position)
    ), stored as materialized (
        select p.resource, p.key, min(p.index) as first, max(p.index) as index, max(p.version) as version
        from passed p
        group by p.resource, p.key
    ), replaced as (
        update fence.records r
        set version = s.version, fencing_token = p_tokens[s.index], sequence = p_sequences[s.index],
            updated_at = clock_timestamp(), content_type = p_content_types[s.index], value = p_values[s.index],
            created = false
        from stored s
        where r.resource = s.resource and r.key = s.key
        returning s.index
    )
    select array_agg(p.index), array_agg(p.version), (select array_agg(r.index) from replaced r),
        (select array_agg(s.index) from stored s), (select array_agg(s.first) from stored s),
        (select array_agg(s.version) from stored s)
    into admitted, versions, v_replaced, v_stored, v_firsts, v_versions
    from passed p;

    if cardinality(v_stored) > coalesce(cardinality(v_replaced), 0) then
        insert into fence.records (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p_resources[u.index], p_keys[u.index], u.version, p_tokens[u.index], p_sequences[u.index],
            clock_timestamp(), p_content_types[u.index], p_values[u.index], u.index = u.first
        from unnest(v_stored, v_firsts, v_versions) as u (index, first, version)
        where u.index <> all (coalesce(v_replaced, '{}'));
        created := array(
            select u.first from unnest(v_stored, v_firsts) as u (index, first)
            where u.index <> all (coalesce(v_replaced, '{}')));
    end if;
end
$$;
