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
    ), raised as (
        update fence.fences f
        set last_token = p_tokens[c.index],
            last_sequence = fence.raised_sequence(f, p_tokens[c.index], p_sequences[c.index]),
            last_version = f.last_version + 1,
            last_digest = case when p_sequences[c.index] is not null then p_digests[c.index] end
        from unnest(p_resources) with ordinality as c (resource, index)
        where f.resource = c.resource
            and (p_atomic and not exists (select from judged j where j.verdict is distinct from 'admitted')
                or c.index in (select p.token_index from passed p))
    )
    select array_agg(
        row(j.verdict,
            case when applied.yes then j.next else coalesce(j.current, 0) end,
            applied.yes and j.kind = 'put' and j.current is null)::fence.finding
        order by j.index)
    into v_findings
    from judged j
    cross join lateral (select j.index in (select p.index from passed p) as yes) applied;
    return v_findings;
end
$$;
