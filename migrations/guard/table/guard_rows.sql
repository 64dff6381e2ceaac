-- fence.guard_below(resources) admits this transaction for each of the resources that lies below a name for which it was
-- admitted by the token of a subtree lease (fence.guard): so a row whose key is generated can be inserted. Each gets the
-- token and the sequence of that guard, by the whole rule. → the resources that are not admitted by this, with the write
-- token of the guard above. token is null if there is none.
--
-- It waits for no fence that another transaction has locked, and rejects nothing: fence.check_rows decides what is left,
-- one by one. lease_id is that of the lease, if the guard above had to show it. A resource that is too long for a name is
-- left, too.
--
-- Raises 40001 as fence.lock_write_tokens does.
create or replace function fence.guard_below(p_resources text[])
returns table (resource text, token bigint, sequence bigint, lease_id uuid)
language plpgsql
as $$
#variable_conflict use_column
declare
    v_policies boolean;
    v_names    text[];
    v_tokens   bigint[];
    v_numbers  bigint[];
    v_ids      uuid[];
    v_rulings  fence.ruling[];
    v_admitted integer := 0;
    v_ignored  text;
begin
    if cardinality(p_resources) = 0 then
        return; -- a look at a table takes a lock, and few are cheap
    end if;
    v_policies := exists (select from fence.policies);
    select array_agg(r.name), array_agg(above.last_token), array_agg(case
            when v_policies and (select p.rule from fence.policy_for(r.name) p) = 'same_token' then null
            else nullif(above.last_sequence, 0) end), array_agg(case
            when v_policies and (select p.require_lease_id from fence.policy_for(above.resource) p) then (
                select l.lease_id from fence.leases_of(above.resource, above.last_token) l) end)
    into v_names, v_tokens, v_numbers, v_ids
    from unnest(p_resources) as r (name)
    cross join lateral (
        select a.* from fence.admitted a
        where a.resource = any (fence.ancestors(r.name)) and octet_length(r.name) <= 512 and exists (
            select from fence.leases_of(a.resource, a.last_token) l where l.scope = 'subtree')
        order by length(a.resource) desc limit 1) above;
    if v_names is not null then
        v_rulings := fence.admit(v_names, v_tokens, v_numbers, v_ids, array_fill(null::bytea, array[cardinality(v_names)]),
            fence.lock_write_tokens(v_names, v_tokens, false), false);
        select count(*), fence.raise_fences(array_agg(u.name), array_agg(u.token), array_agg(u.number), null, false)
        into v_admitted, v_ignored
        from unnest(v_names, v_tokens, v_numbers, v_rulings) as u (name, token, number, verdict)
        where u.verdict = 'admitted';
    end if;
    if v_admitted < cardinality(p_resources) then
        return query
        select r.name, u.token, u.number, u.id
        from unnest(p_resources) as r (name)
        left join unnest(v_names, v_tokens, v_numbers, v_ids, v_rulings) as u (name, token, number, id, verdict)
            on u.name = r.name
        where u.verdict is distinct from 'admitted';
    end if;
end
$$;

-- fence.guard_by_settings(resource, token, sequence, lease_id, undo) is fence.guard_by_rule for the write token of the
-- settings of a transaction (fence.token_from_settings). undo: a rejection keeps no fence locked (fence.guard_or). The
-- verdict is null for a resource that is too long for a name, and for one that the role may not use. Raises what
-- fence.guard_by_rule raises, and 40001 as fence.no_policy_came does.
create or replace function fence.guard_by_settings(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_undo boolean) returns fence.ruling
language plpgsql
as $$
declare
    v_ruling fence.ruling;
begin
    -- As in fence.guard.
    update fence.fences f
    set last_token = p_token, last_sequence = coalesce(p_sequence, 0), last_digest = null,
        admitted_in = pg_current_xact_id()
    where f.resource = p_resource and p_lease_id is null
        and fence.fast_path_admits(f, p_token, p_sequence)
        and not exists (select from fence.policies)
        and fence.may_use(p_resource);
    if found then
        perform fence.bound_transaction('fencegate.guard_timeout', '60 s');
        perform fence.no_policy_came();
        v_ruling.verdict := 'admitted';
    elsif fence.is_name(p_resource) and fence.may_use(p_resource) then
        if p_undo then
            v_ruling := fence.guard_or('undo', p_resource, p_token, p_sequence, p_lease_id, null);
        else
            v_ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, null);
        end if;
    end if;
    if v_ruling.verdict = 'admitted' then
        perform fence.count_guard();
    end if;
    return v_ruling;
end
$$;

-- fence.guard_known(table) is called before a statement writes to a protected table, in a transaction that has
-- set its token (fence.set_token). It guards the transaction, if the resource is known before the rows are: it was named
-- with the token, or the template has no columns. So the transaction locks the fence before the rows, as one does that calls fence.guard
-- first, and does not deadlock with it.
--
-- Leaves rejections and invalid settings to fence.check_rows: the statement may write no row. Raises 40001 as
-- fence.guard_by_settings does.
create or replace function fence.guard_known(p_table oid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_given    record := fence.token_from_settings();
    v_resource text := nullif(current_setting('fencegate.resource', true), '');
begin
    if v_resource is null then -- not in one expression, as in fence.check_rows
        select p.template into v_resource
        from fence.protected_tables p where p.table_id = p_table and p.template !~ '[{]';
    end if;
    if v_given.token is not null and v_resource is not null
        and not exists (select from fence.admitted a where a.resource = v_resource)
    then
        perform fence.guard_by_settings(v_resource, v_given.token, v_given.sequence, v_given.lease_id, true);
    end if;
end
$$;

-- fence.guard_statement() is the trigger before each statement that writes to a protected table: see fence.guard_known. It
-- has an argument if the template has no columns. Most transactions have not set fencegate.token. To set search_path would
-- cost them more than the rest, so all names are qualified instead.
create or replace function fence.guard_statement() returns trigger
language plpgsql security definer
as $$
begin
    if pg_catalog.current_setting('fencegate.token', true) operator(pg_catalog.<>) ''
        and (tg_nargs operator(pg_catalog.>) 0
            or pg_catalog.current_setting('fencegate.resource', true) operator(pg_catalog.<>) '')
    then
        perform fence.guard_known(tg_relid);
    end if;
    return null;
end
$$;
