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
