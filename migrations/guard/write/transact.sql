-- fence.transact(tokens…, operations…) → one row: the verdict on an atomic change under one or more write tokens, all
-- or none.
--
-- tokens      resources, tokens, sequences, lease_ids, and one digest of the whole change; no resource repeats
-- operations  kinds, token_indexes (the token of each, from 1), keys, values, content_types, expected, as in
--             fence.apply_operations
--
-- verdict     admitted, or the verdict on the first token or else operation that was rejected
-- index       the index of that token (of_token) or operation
-- versions    of an admitted change, the version that each operation gave
-- current     of a version_mismatch, the version that the record has (0: none)
-- replayed    the change was applied before, on every one of its fences: this is its first answer again
--
-- Raises 40001 as fence.admit does.
create or replace function fence.transact(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digest bytea,
    p_kinds text[], p_token_indexes integer[], p_keys text[], p_values bytea[], p_content_types text[],
    p_expected bigint[],
    out verdict text, out reason text, out index integer, out of_token boolean, out versions bigint[],
        out current bigint,
    out replayed boolean, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_digests  bytea[] := array_fill(p_digest, array[cardinality(p_resources)]);
    v_locked   text[] := fence.lock_write_tokens(p_resources, p_tokens, true);
    v_rulings  fence.ruling[] := fence.admit(
        p_resources, p_tokens, p_sequences, p_lease_ids, v_digests, v_locked, true);
    v_findings fence.finding[];
begin
    perform fence.commit_durably();
    replayed := (select bool_and(r.replayed) from unnest(v_rulings) r);
    versions := array(
        select (v_rulings[o.token_index]).last_version + case when replayed then 0 else 1 end
        from unnest(p_token_indexes) with ordinality as o (token_index, index) order by o.index);
    if replayed then
        verdict := 'admitted';
        return;
    end if;

    select r.index, r.verdict, r.reason, r.granted_token, r.last_token, r.last_sequence
    into index, verdict, reason, granted_token, last_token, last_sequence
    from unnest(v_rulings) with ordinality as r (
        verdict, reason, replayed, granted_token, last_token, last_sequence, last_version, index)
    where r.verdict <> 'admitted' order by r.index limit 1;
    of_token := found;
    if of_token then
        return;
    end if;

    v_findings := fence.apply_operations(true, p_resources, p_tokens, p_sequences, v_digests, v_rulings,
        p_token_indexes, p_kinds, p_keys, p_values, p_content_types, p_expected);
    index := (select min(i) from generate_subscripts(v_findings, 1) i where (v_findings[i]).verdict <> 'admitted');
    verdict := coalesce((v_findings[index]).verdict, 'admitted');
    current := (v_findings[index]).version;
end
$$;

-- fence.transact_tables(tokens…, record operations…, table operations…) → one row: the verdict on an atomic change of
-- records and of rows of open tables, under one or more write tokens: all of it, or nothing.
--
-- The tokens and the operations on records are those of fence.transact, which decides on them. Then the operations on
-- tables are applied one by one: p_row_tokens (the token of each, from 1), kinds, tables, rows (JSON objects, or arrays
-- of them), wheres (JSON objects, which find rows of the token's resource only), conflicts and returnings (JSON arrays of columns), see fence.write_rows;
-- p_row_counts, how many rows each must write, null: any number. While an operation is applied, only rows of its own
-- token's resource can be written: the triggers of the tables see to that. Deferred constraints are checked at the end,
-- with the rights of the gateway.
--
-- The answer is that of fence.transact, and
-- row_counts, returned  of an admitted change that is no replay, for each operation on a table
-- failure               of the verdict failed, what the operation at index raised (from 1; 0: a deferred constraint, of
--                       any): SQLSTATE, message, detail, column, constraint, table. LF201: no such table is open
--                       (fence.open_table_named). LF202: the number of rows is not the expected one (detail: the
--                       number). LF203: too many were.
--
-- Raises what fence.transact raises, and what another try may not meet: deadlocks, timeouts, lack of resources.
create or replace function fence.transact_tables(
    p_resources text[], p_tokens bigint[], p_sequences bigint[], p_lease_ids uuid[], p_digest bytea,
    p_kinds text[], p_token_indexes integer[], p_keys text[], p_values bytea[], p_content_types text[],
    p_expected bigint[],
    p_row_tokens integer[], p_row_kinds text[], p_tables text[], p_rows text[], p_wheres text[], p_conflicts text[],
    p_returnings text[], p_row_counts bigint[],
    out verdict text, out reason text, out index integer, out of_token boolean, out versions bigint[],
        out current bigint,
    out replayed boolean, out granted_token bigint, out last_token bigint, out last_sequence bigint,
    out row_counts bigint[], out returned text[], out failure text[])
language plpgsql
as $$
declare
    v_tables     regclass[];
    v_roles      name[];
    v_written    record;
    v_rows       bigint := 0;
    v_bytes      bigint := 0;
    v_message    text;
    v_detail     text;
    v_schema     text;
    v_table      text;
    v_column     text;
    v_constraint text;
begin
    select t.* into verdict, reason, index, of_token, versions, current, replayed, granted_token, last_token,
        last_sequence
    from fence.transact(p_resources, p_tokens, p_sequences, p_lease_ids, p_digest,
        p_kinds, p_token_indexes, p_keys, p_values, p_content_types, p_expected) t;
    if verdict <> 'admitted' or replayed then
        return;
    end if;

    with opened as materialized (
        select d.name, o.table_id, o.role from (select distinct t as name from unnest(p_tables) t) d
        cross join lateral fence.open_table_named(d.name) o
    )
    select array_agg(o.table_id order by t.n), array_agg(o.role order by t.n) into v_tables, v_roles
    from unnest(p_tables) with ordinality t (name, n) left join opened o using (name);
    for i in 1 .. cardinality(p_tables) loop
        index := i;
        perform fence.admit_only(p_resources, p_resources[p_row_tokens[i]]);
        if v_tables[i] is null then
            raise exception 'no such table is open to writes by HTTP' using errcode = 'LF201';
        end if;
        v_written := fence.write_rows(p_row_kinds[i], v_tables[i], p_resources[p_row_tokens[i]], v_roles[i],
            p_rows[i]::json, p_wheres[i]::json,
            array(select json_array_elements_text(p_conflicts[i]::json)),
            array(select json_array_elements_text(p_returnings[i]::json)));
        if v_written.row_count <> p_row_counts[i] then
            raise exception 'the operation would change % rows, expected %', v_written.row_count, p_row_counts[i]
                using errcode = 'LF202', detail = v_written.row_count::text;
        end if;
        v_rows := v_rows + v_written.row_count;
        v_bytes := v_bytes + coalesce(octet_length(v_written.returned::text), 0);
        if v_rows > 10000 or v_bytes > 8388608 then
            raise exception 'a transaction changes at most 10000 rows of tables, and returns at most 8 MiB of them'
                using errcode = 'LF203';
        end if;
        row_counts := row_counts || v_written.row_count;
        returned := returned || v_written.returned::text;
    end loop;
    index := 0;
    perform fence.admit_only(p_resources, null);
    set constraints all immediate;
    index := null;
exception when others then
    if index is null or left(sqlstate, 2) in ('08', '25', '40', '53', '55', '57', '58', 'XX') then
        raise;
    end if;
    verdict := 'failed';
    get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_schema = schema_name,
        v_table = table_name, v_column = column_name, v_constraint = constraint_name;
    failure := array[sqlstate, v_message, v_detail, v_column, v_constraint,
        case when v_table <> '' then v_schema || '.' || v_table else '' end];
end
$$;
