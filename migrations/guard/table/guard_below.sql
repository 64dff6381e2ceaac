-- fence.guard_below(resources) admits this transaction for each of the resources that lies below a name for which it was
-- admitted by the token of a subtree lease (fence.guard): so a row whose key is generated can be inserted. Each gets the
-- token and the sequence of that guard, by the whole rule. → the resources that are not admitted by this, in order, with
-- the write token of the guard above. token is null if there is none.
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
    v_locks    record;
    v_rulings  fence.ruling[];
    v_admitted integer := 0;
begin
    if cardinality(p_resources) = 0 then
        return; -- a look at a table takes a lock, and few are cheap
    end if;
    if exists (select from fence.subtrees s where s.open) then
        v_policies := exists (select from fence.policies);
        select array_agg(r.name), array_agg(above.last_token), array_agg(case
                when v_policies and (select p.rule from fence.policy_for(r.name) p) = 'same_token' then null
                else nullif(above.last_sequence, 0) end), array_agg(case
                when v_policies and (select p.require_lease_id from fence.policy_for(above.resource) p) then (
                    select l.lease_id from fence.leases l
                    where l.lock = above.subtree and l.fencing_token = above.last_token) end)
        into v_names, v_tokens, v_numbers, v_ids
        from unnest(p_resources) as r (name)
        cross join lateral (
            select a.resource, a.last_token, a.last_sequence, s.name as subtree
            from fence.admitted a
            join fence.subtrees s on s.granted_token = a.last_token and s.open
                and s.name = any (fence.ancestors(a.resource) || a.resource::text)
            where a.resource = any (fence.ancestors(r.name)) and octet_length(r.name) <= 512
            order by length(a.resource) desc limit 1) above;
    end if;
    if v_names is not null then
        v_locks := fence.lock_write_tokens(v_names, v_tokens, false);
        v_rulings := fence.admit(v_names, v_tokens, v_numbers, v_ids, array_fill(null::bytea, array[cardinality(v_names)]),
            v_locks.covering, v_locks.locked, false);
        update fence.fences f
        set last_token = u.token, last_sequence = fence.raised_sequence(f, u.token, u.number), last_digest = null,
            admitted_in = pg_current_xact_id()
        from unnest(v_names, v_tokens, v_numbers, v_rulings) as u (name, token, number, verdict)
        where f.resource = u.name and u.verdict = 'admitted';
        get diagnostics v_admitted = row_count;
    end if;
    if v_admitted < cardinality(p_resources) then
        return query
        select r.name, u.token, u.number, u.id
        from unnest(p_resources) with ordinality as r (name, n)
        left join unnest(v_names, v_tokens, v_numbers, v_ids, v_rulings) as u (name, token, number, id, verdict)
            on u.name = r.name
        where u.verdict is distinct from 'admitted'
        order by r.n;
    end if;
end
$$;
