-- fence.check_rows(table, resources, observe) is called by the triggers of a protected table, for rows of resources
-- that this transaction is not admitted for. table is the table of the rows, perhaps a partition. observe: the mode of
-- the table is "observe". The triggers pass it, because the snapshot of the transaction may be older than the mode.
--
-- A transaction that has set its token (fence.set_token) is guarded by that now; one that has named a resource with it,
-- for that alone. For the others, one that was admitted for a name above by a subtree lease is admitted, too
-- (fence.guard_below). What is left is rejected: it raises as fence.guard does, or LF101 for a transaction without a
-- token. In the mode "observe" nothing raises; rejections are recorded instead, as many as fence.report_rejection does,
-- and an invalid setting counts as none.
--
-- Raises 22023 if a setting is invalid, 55000 for a resource that is null: a column of the template was given another
-- type (fence.resource_expression). fence.protected shows that, too.
create or replace function fence.check_rows(p_table oid, p_resources text[], p_observe boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_root     oid := coalesce(pg_partition_root(p_table), p_table);
    v_only     text := nullif(current_setting('fencegate.resource', true), '');
    v_given    record := fence.token_from_settings();
    v_row      record;
    v_ruling   fence.ruling;
    v_error    record;
begin
    if array_position(p_resources, null) is not null and not p_observe then
        raise exception 'a column of the template of % has another type than when the table was protected',
            v_root::regclass using errcode = 'object_not_in_prerequisite_state', hint = 'Call fence.protect again.';
    end if;
    if not p_observe then
        perform fence.require(v_given.problem is null, v_given.problem);
    end if;
    -- In one order for all transactions, so that they do not deadlock.
    for v_row in
        select g.*
        from (
            select r.resource, v_given.token as token, v_given.sequence as sequence, v_given.lease_id as lease_id
            from unnest(p_resources) as r (resource)
            where v_given.token is not null and coalesce(v_only = r.resource, r.resource is not null)
            union all
            select b.*
            from fence.guard_below(array(
                select r.resource from unnest(p_resources) as r (resource)
                where r.resource is not null and (v_given.token is null or v_only <> r.resource))) b
            where v_given.token is null or v_only is not null -- otherwise PostgreSQL does not call it
        ) g
        order by g.resource collate "C"
    loop
        v_ruling := null;
        if v_row.token is not null then
            v_ruling := fence.guard_by_settings(
                v_row.resource, v_row.token, v_row.sequence, v_row.lease_id, p_observe);
            continue when v_ruling.verdict = 'admitted';
        end if;
        if v_ruling.verdict is null then
            v_row.token := null;
            v_row.sequence := null;
            select 'token_required', '', false, coalesce(f.granted_token, 0), coalesce(f.last_token, 0),
                coalesce(f.last_sequence, 0), coalesce(f.last_version, 0)
            into v_ruling
            from (values (v_row.resource)) as r (resource)
            left join fence.fences f on f.resource = r.resource;
        end if;
        if v_ruling.granted_token = 0 and not p_observe then
            perform fence.check_here(v_row.resource);
        end if;
        if not p_observe then
            v_error := fence.rejection_error(v_row.resource, v_row.token, v_row.sequence, v_ruling, v_root);
            raise exception using errcode = v_error.state, message = v_error.message, detail = v_error.detail,
                hint = v_error.hint;
        end if;
        exit when not fence.report_rejection(v_row.resource, v_row.token, v_row.sequence, v_ruling, v_root);
    end loop;
end
$$;

-- fence.check_truncate() is the trigger before a TRUNCATE of a protected table or of one of its partitions. It takes
-- away the rows of all resources. So it needs a template without columns, and an admitted transaction.
--
-- Raises 40001 if the registration has changed since the snapshot of the transaction.
create or replace function fence.check_truncate() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_root     oid := coalesce(pg_partition_root(tg_relid), tg_relid);
    v_template text;
    v_mode     text;
    v_error    record;
    v_ruling   fence.ruling := row('truncate', '', false, 0, 0, 0, 0);
begin
    select p.template, p.mode into v_template, v_mode from fence.protected_tables p where p.table_id = v_root for share;
    if not found then
        raise exception '% is not protected, but has a trigger that protects it', tg_relid::regclass
            using errcode = 'object_not_in_prerequisite_state', hint = 'Call fence.protect or fence.unprotect.';
    elsif v_template !~ '[{]' then
        if not exists (select from fence.admitted a where a.resource = v_template) then
            perform fence.check_rows(tg_relid, array[v_template], v_mode = 'observe');
        end if;
    elsif v_mode = 'observe' then
        perform fence.report_rejection(v_template, null, null, v_ruling, v_root);
    else
        v_error := fence.rejection_error(v_template, null, null, v_ruling, v_root);
        raise exception using errcode = v_error.state, message = v_error.message, detail = v_error.detail,
            hint = v_error.hint;
    end if;
    return null;
end
$$;
