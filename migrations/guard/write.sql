-- fence.write(resources, tokens, sequences, lease_ids, digests, kinds, keys, values, content_types, expected, wait_ms)
--
-- Decides and applies a set of independent writes in one round trip and one commit. A rejected write does not
-- fail its neighbours. Two writes to one resource are judged in the order given: the first writes of all resources make the first turn,
-- the second writes the second, and so on.
--
-- wait_ms   how long to wait for a fence that somebody else has locked: null: as long as it takes; 0: not at all, its writes are
--           busy; otherwise 55P03 is raised after so many ms, and nothing was applied. (With 0 as well, after 100 ms, where something
--           else is locked: a subtree, or a fence that is being made.)
--
-- The answer is columns of places in the arrays (from 1) and, side by side with them, what there is to say:
-- admitted, versions  the version that each admitted write gave
-- created             which of them are puts that made a record that was not there
-- replayed            which of them were applied before: this is their first answer again
-- busy                those of which nothing was decided, since the fence was locked; see wait_ms
-- refused, verdicts, reasons, standing, granted_tokens, last_tokens, last_sequences
--     verdict  token_required, token_unknown, token_stale, lease_mismatch, lease_expired, version_mismatch, not_found (the delete of
--              what is not there)
--     standing of a version_mismatch the version that stands (0: none)
--     the rest is the fence as it stands
--
-- Raises 40001, with nothing applied, if the write should be sent again; see fence.write_plain.
--
-- The planner's choices are pinned: by the keys, whatever the statistics say of a table that was empty a minute ago.
create or replace function fence.write(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digests bytea[],
    p_kinds text[], p_keys text[], p_values bytea[], p_content_types text[], p_expected bigint[], p_wait_ms integer,
    out admitted integer[], out versions bigint[], out created integer[], out replayed integer[], out busy integer[],
    out refused integer[], out verdicts text[], out reasons text[], out standing bigint[],
    out granted_tokens bigint[], out last_tokens bigint[], out last_sequences bigint[])
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_count   constant integer := cardinality(p_resources);
    v_direct  constant boolean := p_wait_ms is distinct from 0 and not exists (select from fence.policies);
    v_plain   integer[]; -- the turn of each write that may go the short way
    v_turns   integer[] := array_fill(1, array[v_count]);
    v_last    integer := 1;
    v_places  integer[];
    v_decided integer[];
    v_late    integer[];
    v_short   record;
    v_long    record;
begin
    if p_wait_ms is not null then
        perform set_config('lock_timeout', coalesce(nullif(p_wait_ms, 0), 100)::text, true);
    end if;
    if v_count > 1 and v_count > (select count(distinct r collate "C") from unnest(p_resources) r) then
        select array_agg(t.turn order by t.place), max(t.turn) into v_turns, v_last
        from (
            select u.place, (row_number() over (partition by u.resource collate "C" order by u.place))::integer as turn
            from unnest(p_resources) with ordinality as u (resource, place)) t;
    end if;
    if v_direct then
        v_plain := array(
            select case when u.kind = 'put' and u.lease_id is null and u.expected is null then u.turn end
            from unnest(p_kinds, p_lease_ids, p_expected, v_turns) as u (kind, lease_id, expected, turn));
    end if;

    for v_turn in 1 .. v_last loop
        v_decided := '{}';
        if v_direct then
            v_short := fence.write_plain(
                p_resources, p_tokens, p_sequences, p_digests, p_keys, p_values, p_content_types, v_plain, v_turn);
            admitted := admitted || v_short.admitted;
            versions := versions || v_short.versions;
            created := created || v_short.created;
            exit when cardinality(admitted) = v_count;
            v_decided := coalesce(v_short.admitted, '{}');
        end if;

        v_places := array(
            select u.place from unnest(v_turns) with ordinality as u (turn, place)
            where u.turn = v_turn and u.place not in (select d from unnest(v_decided) d) order by u.place);
        if busy is not null then
            -- The fence may be free by now. But the writes of one resource are judged in their order, or not at all.
            v_late := array(select i from unnest(v_places) i where p_resources[i] in (select p_resources[b] from unnest(busy) b));
            v_places := array(select i from unnest(v_places) i except select l from unnest(v_late) l order by i);
            busy := busy || v_late;
        end if;
        continue when cardinality(v_places) = 0;
        v_long := fence.write_ruled(v_places, p_resources, p_tokens, p_sequences, p_lease_ids, p_digests,
            p_kinds, p_keys, p_values, p_content_types, p_expected, p_wait_ms is distinct from 0);
        admitted := admitted || v_long.admitted;
        versions := versions || v_long.versions;
        created := created || v_long.created;
        replayed := replayed || v_long.replayed;
        busy := busy || v_long.busy;
        refused := refused || v_long.refused;
        verdicts := verdicts || v_long.verdicts;
        reasons := reasons || v_long.reasons;
        standing := standing || v_long.standing;
        granted_tokens := granted_tokens || v_long.granted_tokens;
        last_tokens := last_tokens || v_long.last_tokens;
        last_sequences := last_sequences || v_long.last_sequences;
    end loop;
end
$$;
