-- fence.write_plain(claims…, puts…, turns, turn) → the places of the puts that were admitted and applied, the version that each gave, and
-- the places of those that made a record.
--
-- The short way of a put that has nothing to it but a token: no lease_id, no precondition, and no policy anywhere. Then fence.rule on the
-- fence row is all there is to judge, and one statement can judge and raise it: under READ COMMITTED an update looks again at a row that
-- it had to wait for. Subtree leases need no look: the grant of one closes the open fences below it (fence.grant_lease). What is not
-- admitted here is left as it was, and not refused yet: fence.write gives it to fence.admit, which knows subtrees and retries, and says why.
--
-- Puts are those whose turn is the one given; no resource repeats among them. Fences are locked in the order of their names.
--
-- Raises 40001 if a policy has come meanwhile: the rows were judged before that could be seen. Sent again, the write is judged by it.
create or replace function fence.write_plain(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_digests bytea[],
    p_keys text[], p_values bytea[], p_content_types text[], p_turns integer[], p_turn integer,
    out admitted integer[], out versions bigint[], out created integer[])
language plpgsql
as $$
begin
    with raised as (
        update fence.fences f
        set last_token = c.token, last_sequence = coalesce(c.sequence, 0), last_version = f.last_version + 1,
            last_digest = case when c.sequence is not null then c.digest end
        from (
            select u.*
            from unnest(p_resources, p_tokens, p_sequences, p_digests, p_keys, p_values, p_content_types, p_turns) with ordinality
                as u (resource, token, sequence, digest, key, value, content_type, turn, place)
            where u.turn = p_turn
            order by u.resource collate "C") c
        where f.resource = c.resource
            and fence.rule(c.token, c.sequence, false, false, f.granted_token, f.open, f.last_token, f.last_sequence) = 'admitted'
        returning c.place::integer as place, f.resource, c.key, f.last_version as version, c.token, c.sequence, c.content_type, c.value
    ), replaced as (
        -- First the records that are there: an insert that finds one locks it, which is logged, before it updates it.
        update fence.records r
        set version = p.version, fencing_token = p.token, sequence = p.sequence, updated_at = clock_timestamp(),
            content_type = p.content_type, value = p.value, created = false
        from raised p
        where r.resource = p.resource and r.key = p.key
        returning p.place
    ), put as (
        insert into fence.records as r (
            resource, key, version, fencing_token, sequence, updated_at, content_type, value, created)
        select p.resource, p.key, p.version, p.token, p.sequence, clock_timestamp(), p.content_type, p.value, true
        from raised p
        where p.place not in (select place from replaced)
        -- One that was made while this statement waited for the fence, and which it therefore does not see.
        on conflict (resource, key) do update
        set version = excluded.version, fencing_token = excluded.fencing_token, sequence = excluded.sequence,
            updated_at = excluded.updated_at, content_type = excluded.content_type, value = excluded.value, created = false
        returning r.resource, r.created
    )
    select array_agg(p.place), array_agg(p.version),
        array_agg(p.place) filter (where p.resource in (select put.resource from put where put.created))
    into admitted, versions, created
    from raised p;

    if exists (select from fence.policies) then
        raise exception 'a policy came while the write waited' using errcode = 'serialization_failure';
    end if;
end
$$;
