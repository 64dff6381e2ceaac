-- fence.claim(jobs, jobs_max, owner_id, ttl_ms, condition, order_by) takes leases on rows of a protected table that
-- nobody holds: jobs of a queue, or messages of an outbox. It is part of the public interface: docs/sql/leases.md
-- describes it, and its arguments and columns stay. → a row for each: its resource, the lease, and the row itself. It
-- may return fewer than there are. It leaves out rows of names that the role may not use. Rows of one resource share
-- its lease.
--
-- condition  an SQL condition on the row: what is a job that is not done; null: every row
-- order_by   as in SQL; null: the columns of the template
-- lease_id   is one for all rows of the call, and a secret: fence.renew_claim renews them together
--
-- It reads and locks the rows with the rights and the search_path of its caller, who needs the rights to select and to
-- update. Both texts become part of a statement: they must not come from a user. Names are qualified, as in
-- fence.guard.
--
-- It waits for no other transaction. A row is locked first, so that of two claims one skips it, and a row that another
-- transaction has just changed is judged anew. Then fence.claim_leases decides whether it is held, and leaves out what
-- another transaction has locked. The claim replaces those by the next rows. It does so for a second at most while it
-- has nothing, and ends at the first rows that bring nothing more.
--
-- Raises what fence.claim_query and fence.claim_leases raise.
create or replace function fence.claim(
    jobs regclass, jobs_max integer, owner_id text, ttl_ms integer default 30000, condition text default null,
    order_by text default null)
returns table (resource text, lease_id uuid, fencing_token bigint, expires_at timestamptz, job jsonb)
language plpgsql
as $$
#variable_conflict use_column
declare
    c_search  constant pg_catalog.interval := '1 s';
    v_until   pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) c_search;
    v_claim   pg_catalog.uuid := pg_catalog.overlay(pg_catalog.gen_random_uuid()::pg_catalog.text, '83', 15);
    v_tried   pg_catalog.text[] := '{}';
    v_names   pg_catalog.text[];
    v_jobs    pg_catalog.jsonb[];
    v_left    pg_catalog.int4 := jobs_max;
    v_claimed pg_catalog.int4;
begin
    loop
        execute fence.claim_query(jobs, v_left, claim.owner_id, claim.ttl_ms, condition, order_by, v_tried)
            into v_names, v_jobs;
        exit when v_names is null;
        return query
        select l.resource, v_claim, l.fencing_token, l.expires_at, j.job
        from fence.claim_leases(jobs, v_names, claim.owner_id, claim.ttl_ms, v_claim) l
        join rows from (pg_catalog.unnest(v_names), pg_catalog.unnest(v_jobs)) with ordinality as j (resource, job, n)
            on j.resource operator(pg_catalog.=) l.resource
        order by j.n;
        get diagnostics v_claimed = row_count;
        exit when pg_catalog.cardinality(v_names) operator(pg_catalog.<) v_left
            or v_claimed operator(pg_catalog.=) 0 and (v_left operator(pg_catalog.<) jobs_max
                or pg_catalog.clock_timestamp() operator(pg_catalog.>) v_until);
        v_left := v_left operator(pg_catalog.-) v_claimed;
        exit when v_left operator(pg_catalog.=) 0;
        v_tried := v_tried operator(pg_catalog.||) v_names;
    end loop;
end
$$;

-- fence.claim_leases(table, locks, owner_id, ttl_ms, lease_id) → the leases that are granted on locks, which
-- fence.claim has found, each once or more: exclusive ones with this lease_id. Others are left out: those that are
-- held, or that wait; those for which it would have to wait for another transaction; and those for which this
-- transaction can take no more tree locks (fence.within_tree_locks).
--
-- It makes fences without a bound (fence.check_new_fence), because the sweep forgets them (fence.sweep_claims). It
-- knows them by the lease_id, which is that of a claim (fence.is_claim), and by their metadata.
--
-- Raises what fence.acquire raises, except 54000.
create or replace function fence.claim_leases(
    p_table regclass, p_locks text[], p_owner_id text, p_ttl_ms integer, p_lease_id uuid)
returns table (resource text, fencing_token bigint, expires_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_setting   text := current_setting('synchronous_commit');
    v_principal text := 'sql:' || session_user;
    v_metadata  json := json_build_object('table', fence.name_of_table(p_table));
    v_found     text[] := array(
        select l from unnest(p_locks) with ordinality as u (l, n) group by l order by min(n));
    v_count     integer := cardinality(v_found);
    v_locks     text[];
    v_made      text[];
    v_leases    fence.leases[] := '{}';
    v_answer    record;
begin
    perform fence.check_lease_call(p_locks[1], p_owner_id);
    perform fence.check_ttl(p_ttl_ms);
    perform fence.require(v_count <= 1000, format('a claim has %s locks, the limit is 1000', v_count));
    perform fence.require(fence.is_claim(p_lease_id), 'lease_id is not that of a claim');
    perform fence.check_use(l), fence.check_provider(l), fence.check_authority(l) from unnest(v_found) l;
    v_locks := array(select l from unnest(fence.within_tree_locks(v_found)) l where fence.try_tree_lock(l));

    v_made := array(
        select l from unnest(v_locks) l where (select true from fence.fences f where f.resource = l limit 1) is null
        order by l collate "C");
    if v_made <> '{}' then
        perform fence.check_here(l) from unnest(v_made) l;
        v_made := fence.make_fences(v_made);
    end if;

    v_count := cardinality(v_locks);
    for v_answer in
        select * from fence.acquire_leases(v_locks, array_fill(p_owner_id, array[v_count]),
            array_fill(v_principal, array[v_count]), array_fill('exclusive'::text, array[v_count]),
            array_fill(p_ttl_ms, array[v_count]), '{}', array_fill(v_metadata::text, array[v_count]),
            array_fill(0, array[v_count]), '{}', p_lease_id)
    loop
        perform fence.check_outcome(v_answer.outcome);
        if v_answer.outcome = 'granted' then
            v_leases := v_leases || v_answer.lease;
        end if;
    end loop;
    perform set_config('synchronous_commit', v_setting, true);
    if cardinality(v_leases) > 0 then
        perform fence.commit_durably();
    end if;
    delete from fence.fences f
    where f.resource = any (v_made) and f.granted_token = 0 and f.last_token = 0;
    return query select l.lock, l.fencing_token, l.expires_at from unnest(v_leases) l;
end
$$;

-- fence.claim_query(jobs, jobs_max, owner_id, ttl_ms, condition, order_by, tried) checks the arguments of fence.claim →
-- the statement by which that finds rows: it locks up to jobs_max of them that nobody holds and whose resources are not
-- among tried, and returns the arrays of the resources and of the rows.
--
-- condition and order_by refer to the table by its own name, see no name but those of its columns, and may end in a
-- comment. The statement has no parameters, which they could use.
--
-- Raises 22023 for a bad argument, also for a table that is not protected, or whose template has no column; 25000 and
-- 25006, see fence.check_lease_call; 54000 if the transaction can lock no other name, see fence.check_tree_locks. The
-- statement shows the template, so it raises 42501 as fence.check_readable does.
create or replace function fence.claim_query(
    p_jobs regclass, p_jobs_max integer, p_owner_id text, p_ttl_ms integer, p_condition text, p_order_by text,
    p_tried text[])
returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_template text := (select p.template from fence.protected_tables p where p.table_id = p_jobs and fence.check_readable(p_jobs));
    v_resource text;
    v_columns  text;
begin
    perform fence.check_lease_call('any', p_owner_id);
    perform fence.check_ttl(p_ttl_ms);
    perform fence.require(p_jobs_max between 1 and 1000, format('jobs_max is %L, it must be 1 to 1000', p_jobs_max));
    perform fence.require(v_template is not null, format('%s is not protected: call fence.protect first', p_jobs));
    v_columns := (
        select string_agg(format('%s.%I', p_jobs, c.name[1]), ', ')
        from regexp_matches(v_template, '[{]([^{}]+)[}]', 'g') as c (name));
    perform fence.require(v_columns is not null, format(
        'the template %L of %s has no column: a claim needs a fence for each row', v_template, p_jobs));
    if p_tried = '{}' then
        perform fence.check_tree_locks(v_template);
    end if;
    v_resource := fence.resource_expression(p_jobs, v_template, p_jobs::text);
    return format($query$
        select pg_catalog.array_agg(%1$s), pg_catalog.array_agg(pg_catalog.to_jsonb(c.*))
        from (
            select %2$s.*
            from %2$s
            where (%3$s
                ) and not fence.is_held(%4$s) and (%4$s) operator(pg_catalog.<>) all (%5$L::pg_catalog.text[])
            order by %6$s
            limit %7$s
            for no key update of %8$I skip locked) c
        $query$, fence.resource_expression(p_jobs, v_template, 'c'), p_jobs, coalesce(p_condition, 'true'),
        v_resource, p_tried, coalesce(p_order_by, v_columns), p_jobs_max,
        (select r.relname from pg_class r where r.oid = p_jobs));
end
$$;

-- fence.renew_claim(owner_id, lease_id, ttl_ms) makes all leases of a claim that run last ttl_ms from now (null: the
-- TTL that each has), but not longer than their policies allow. It is part of the public interface: docs/sql/leases.md
-- describes it, and its arguments and columns stay. → a row for each that runs. What is missing was lost, released or
-- replaced: its owner stops that work.
--
-- It waits for no other transaction. A lease that another one has locked, which renews or releases it, is returned with
-- the expires_at that it has.
--
-- Raises as fence.renew does.
create or replace function fence.renew_claim(owner_id text, lease_id uuid, ttl_ms integer default null)
returns table (resource text, fencing_token bigint, expires_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    v_locks  text[];
    v_tokens bigint[];
    v_live   fence.leases[];
    v_done   text[];
begin
    perform fence.check_lease_ref('any', renew_claim.owner_id, renew_claim.lease_id, 1);
    if renew_claim.ttl_ms is not null then
        perform fence.check_ttl(renew_claim.ttl_ms);
    end if;
    select array_agg(l.lock), array_agg(l.fencing_token) into v_locks, v_tokens
    from fence.leases l
    where l.owner_id = renew_claim.owner_id and l.ended_at is null and l.lease_id = renew_claim.lease_id
        and fence.may_use(l.lock);
    if v_locks is null then
        return;
    end if;
    select array_agg(r.lease) filter (where r.status = 'live'), array_agg(r.lock) into v_live, v_done
    from fence.renew_leases(v_locks, array_fill(renew_claim.owner_id, array[cardinality(v_locks)]),
        array_fill(renew_claim.lease_id, array[cardinality(v_locks)]), v_tokens,
        array_fill(renew_claim.ttl_ms, array[cardinality(v_locks)]), false) r;
    return query
    select r.lock, r.fencing_token, r.expires_at from unnest(v_live) r
    union all
    select l.lock, l.fencing_token, l.expires_at from unnest(v_locks, v_tokens) as u (lock, token)
    join fence.leases l on l.lock = u.lock and l.fencing_token = u.token
    where (u.lock = any (v_done)) is not true and l.ended_at is null and l.expires_at > clock_timestamp();
end
$$;

-- fence.is_held(lock) → whether a lease on the lock runs, or the name is too long for a lock; null for a name that the
-- role may not use. For fence.claim. It is dear, so that the planner tests the conditions of the caller first.
create or replace function fence.is_held(p_lock text) returns boolean
language plpgsql stable security definer cost 10000 set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
begin
    return case when fence.may_use(p_lock) then
        octet_length(p_lock) > 512 or exists (select from fence.live_leases() l where l.lock = p_lock) end;
end
$$;

-- fence.check_readable(table) → true. Raises 42501 unless the session may read the table: by the rights of its role, or
-- of one to which it may SET ROLE.
create or replace function fence.check_readable(p_table regclass) returns boolean
language plpgsql stable
as $$
begin
    if not has_any_column_privilege(session_user, p_table, 'select') and not exists (
        select from pg_roles r
        where pg_has_role(session_user, r.oid, 'member') and has_any_column_privilege(r.oid, p_table, 'select'))
    then
        raise exception 'permission denied for table %', p_table using errcode = 'insufficient_privilege';
    end if;
    return true;
end
$$;

-- fence.is_claim(lease_id) → whether fence.claim granted the lease: no other has such a lease_id
-- (fence.lease_provider).
create or replace function fence.is_claim(p_lease_id uuid) returns boolean
language sql immutable
return substr(p_lease_id::text, 15, 2) = '83';

-- fence.make_fences(names) → the names whose fences it has made, of those that have none. It leaves out names whose
-- fence another transaction has just made, for which an insert would wait, and finds them by halves: 1 ms for each of
-- these is over when the lock_timeout ends the insert. For fence.claim_leases.
create or replace function fence.make_fences(p_names text[]) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '1ms'
as $$
declare
    v_half integer := cardinality(p_names) / 2;
    v_made text[];
begin
    with made as (
        insert into fence.fences (resource) select n from unnest(p_names) n order by n collate "C"
        on conflict do nothing
        returning resource
    )
    select array_agg(m.resource::text) into v_made from made m;
    return coalesce(v_made, '{}');
exception
    when lock_not_available or deadlock_detected then
        return case when v_half > 0
            then fence.make_fences(p_names[:v_half]) || fence.make_fences(p_names[v_half + 1:]) else '{}' end;
end
$$;
