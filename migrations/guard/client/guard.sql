-- fence.guard(resource, token, sequence, lease_id, digest) → true: this transaction may write to the resource.
--
-- For applications. Judges the write token by the whole rule, as for a write by HTTP, raises the fence of the resource,
-- and keeps it locked until the end of the transaction: a grant of a newer token waits for this transaction, or this
-- transaction is rejected (P3). A rollback takes it all back. Call it first, and read what the write depends on
-- afterwards.
--
-- sequence  numbers the transactions of one token, from 1; null counts as 0. A token without sequences admits one
--           transaction, unless the policy is same_token.
-- lease_id  compared with that of the lease, if given or if the policy requires it
-- digest    identifies the content of a numbered transaction, at most 64 bytes
--
-- Again with the same token and sequence, in the same transaction, it returns true. It returns false only if the token,
-- the sequence and the digest are those of the last accepted write: the transaction was committed before, so do not
-- write again.
--
-- Raises the SQLSTATE of the rejection (fence.rejection_error), 22023 for an invalid argument, 25006 as
-- fence.check_writable does, 42501 as fence.check_use does, and 40001 as fence.guard_by_rule does, or if the first policy
-- was set while this waited for the fence. A policy that was set in the last milliseconds may not apply yet. Nor may a
-- name that was allowed, or is not any more, while this waited.
--
-- Bounds how long the transaction may keep the fence (fence.bound_transaction): 60 s, or the setting
-- fencegate.guard_timeout.
--
-- Leaves synchronous_commit as it is: data and fence are lost together or not at all.
--
-- The common case is one statement, the fast path (fence.fast_path_admits): to lock the fence in another one first would
-- cost a fifth of a guarded transaction. To set search_path would cost a tenth of it,
-- so all names here are qualified instead, operators too. enable_seqscan costs less, and is needed: a serializable
-- transaction that scans a table conflicts with the writers of all its rows, and a session that planned a scan of a small
-- table would keep it while the table grows. (An INSERT with ON CONFLICT never scans either, but it would lock the fence
-- before it judges.)
create or replace function fence.guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null)
returns boolean
language plpgsql security definer
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_bound pg_catalog.text;
    v_began constant pg_catalog.timestamptz := pg_catalog.clock_timestamp();
begin
    if guard.digest is null and (guard.sequence operator(pg_catalog.>=) 0) is not false
        and pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'off'
    then
        update fence.fences f
        set last_token = guard.token, last_sequence = coalesce(guard.sequence, 0), last_digest = null,
            admitted_in = pg_catalog.pg_current_xact_id()
        where f.resource operator(pg_catalog.=) guard.resource
            and fence.fast_path_admits(f, guard.token, guard.sequence)
            and not exists (select from fence.policies)
            and fence.may_use(guard.resource)
            -- A query here would have the statement planned anew in each call: without a lease_id its plan is cheaper.
            and (guard.lease_id is null or fence.has_lease_id(guard.resource, guard.token, guard.lease_id));
        if found then
            if (pg_catalog.clock_timestamp() operator(pg_catalog.-) v_began)
                operator(pg_catalog.>) '5 ms'::pg_catalog.interval
            then
                perform fence.no_policy_came();
            end if;
            -- In place: to call fence.bound_transaction would cost a third of a guard.
            if pg_catalog.current_setting('idle_in_transaction_session_timeout') operator(pg_catalog.=) '0'
                and pg_catalog.current_setting('fencegate.guard_timeout', true) is null
            then
                v_bound := pg_catalog.set_config('idle_in_transaction_session_timeout', '60000', true);
                if pg_catalog.current_setting('transaction_timeout', true) operator(pg_catalog.=) '0' then
                    v_bound := pg_catalog.set_config('transaction_timeout', '60000', true);
                end if;
            elsif pg_catalog.current_setting('idle_in_transaction_session_timeout') operator(pg_catalog.<>) '1min'
                or pg_catalog.current_setting('fencegate.guard_timeout', true) is not null
            then
                perform fence.bound_transaction('fencegate.guard_timeout', '60 s');
            end if;
            return true;
        end if;
    end if;
    return (fence.guard_or('raise', guard.resource, guard.token, guard.sequence, guard.lease_id, guard.digest)).verdict
        operator(pg_catalog.=) 'admitted';
end
$$;

-- fence.try_guard(resource, token, sequence, lease_id, digest) → the verdict of fence.guard as a row. It does not raise
-- a rejection.
--
-- verdict  admitted; replayed: the transaction was committed before; or the code of the rejection
-- reason   of token_stale: superseded, released, reused, shared; otherwise ''
-- granted_token, last_token, last_sequence  the fence as it was judged
--
-- A rejection is recorded if the caller commits. It keeps nothing locked.
create or replace function fence.try_guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_ruling fence.ruling := fence.guard_or('undo', resource, token, sequence, lease_id, digest);
begin
    if v_ruling.verdict not in ('admitted', 'replayed') then
        perform fence.report_rejection(resource, token, sequence, v_ruling, null);
    else
        perform fence.count_guard();
    end if;
    select v_ruling.verdict, v_ruling.reason, v_ruling.granted_token, v_ruling.last_token, v_ruling.last_sequence
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;

-- fence.count_guard() does nothing. Where track_functions is set, PostgreSQL counts the calls that return: of fence.guard
-- each one is a guard that was admitted, and those that were admitted otherwise call this. So a count costs no write.
create or replace function fence.count_guard() returns void
language plpgsql
as $$
begin
end
$$;

-- fence.guard_by_rule(resource, token, sequence, lease_id, digest) → the ruling on the write token of a transaction, by
-- the whole rule. If it is admitted, the fence is raised, and the transaction is noted as admitted.
--
-- verdict  as of fence.admit, or
--          replayed      the last accepted write had this token, sequence and digest
--          token_reused  the last accepted write had this token and sequence, and at least one of them no digest: it
--                        was committed. Not for writes without a sequence: these are not told apart
--
-- Does not wait for a rejection by the fence: one needs no lock. Where another transaction has locked the fence, this judges without it,
-- and waits for it only if that look does not reject. So a former holder, which may have locked rows of the table, never
-- waits for the holder, which may wait for these rows. A replay is judged with the lock: it makes the commit of this
-- transaction wait for the standbys that the first one waits for (P14), as a commit that only read would not. So is a
-- rejection by the lease (its times, its lease_id): it does not show that a transaction with this number, whose COMMIT got
-- no answer, has ended. One by the fence does: the grant or the release that it shows has waited for that transaction.
--
-- Under REPEATABLE READ and SERIALIZABLE the snapshot may be older than the grant of the token, or a renewal of its lease.
-- Locking a row that was changed since raises 40001, also where the row is locked: so a fence that is judged without its
-- lock is as new as the snapshot. A subtree above it may have a newer token, under which "stale" stays stale. A lease may
-- have been renewed: a verdict by its times or its lease_id locks the lease. A token that seems
-- unknown raises 40001, if it may have been granted since. Policies are those of the snapshot.
--
-- Raises 40001 as fence.admit and fence.lock_write_tokens do, 22023 for an invalid argument, 25006 as
-- fence.check_writable does, and 42501 as fence.check_use does, before it looks at the fence.
create or replace function fence.guard_by_rule(
    p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_digest bytea)
returns fence.ruling
language plpgsql
as $$
declare
    v_sequence bigint := coalesce(p_sequence, 0);
    -- Not the digest of any write by HTTP.
    v_digest   bytea := convert_to('sql:', 'UTF8') || p_digest;
    v_snapshot boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
    v_wait     boolean;
    v_locked   text[];
    v_ruling   fence.ruling;
begin
    perform fence.check_guard_arguments(p_resource, p_token, p_sequence, p_digest), fence.check_use(p_resource),
        fence.check_writable();
    perform fence.bound_transaction('fencegate.guard_timeout', '60 s');
    foreach v_wait in array array[false, true] loop
        v_locked := fence.lock_write_tokens(array[p_resource], array[p_token], v_wait);
        v_ruling := (fence.admit(array[p_resource], array[p_token], array[p_sequence], array[p_lease_id],
            array[v_digest], v_locked, case when v_wait or p_resource = any (v_locked) then true end))[1];

        if (p_token, v_sequence) = (v_ruling.last_token, v_ruling.last_sequence) then
            if exists (select from fence.admitted a where a.resource = p_resource) then
                v_ruling.verdict := 'admitted';
                return v_ruling;
            elsif v_ruling.replayed then
                v_ruling.verdict := 'replayed';
            elsif v_ruling.verdict <> 'admitted'
                and p_sequence is not null
                and exists (
                    select from fence.fences f
                    where f.resource = p_resource and f.last_digest is distinct from '' -- fence.set_fence: no write
                        and (v_digest is null or f.last_digest is null))
            then
                v_ruling.verdict := 'token_reused';
                v_ruling.reason := '';
            end if;
        end if;

        if v_snapshot and v_ruling.verdict = 'token_unknown' and p_token <= (select t.last_value from fence.tokens t) then
            raise exception 'the token % may have been granted after the snapshot of this transaction', p_token
                using errcode = 'serialization_failure',
                hint = 'Repeat the transaction, and call fence.guard first in it.';
        end if;
        exit when p_resource = any (v_locked)
            or v_ruling.verdict in ('token_required', 'token_unknown', 'token_stale', 'token_reused');
    end loop;

    if v_ruling.verdict = 'admitted' then
        perform fence.raise_fences(array[p_resource], array[p_token], array[p_sequence], array[v_digest], false);
    elsif v_snapshot and v_ruling.verdict in ('lease_expired', 'lease_mismatch') then
        perform from fence.leases l
        where l.lock = any (fence.ancestors(p_resource) || p_resource) and l.fencing_token = p_token for share;
    end if;
    return v_ruling;
end
$$;

-- fence.guard_or(otherwise, resource, token, sequence, lease_id, digest) is fence.guard_by_rule for callers with one
-- resource. otherwise says what becomes of a rejection:
--
-- raise  its error is raised (fence.rejection_error)
-- undo   it is returned. The fences that it locked are not locked any more: a rejected transaction that stays open delays
--        no grant (P7)
-- ask    as undo, but also an admission is undone
create or replace function fence.guard_or(
    p_otherwise text, p_resource text, p_token bigint, p_sequence bigint, p_lease_id uuid, p_digest bytea,
    out ruling fence.ruling)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_error record;
begin
    if p_otherwise = 'raise' then
        ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, p_digest);
    else
        begin
            ruling := fence.guard_by_rule(p_resource, p_token, p_sequence, p_lease_id, p_digest);
            if p_otherwise = 'ask' or ruling.verdict not in ('admitted', 'replayed') then
                raise exception 'undone' using errcode = 'LF100';
            end if;
        exception
            when sqlstate 'LF100' then
                null; -- the ruling stays
        end;
    end if;
    if p_otherwise = 'raise' and ruling.verdict not in ('admitted', 'replayed') then
        v_error := fence.rejection_error(p_resource, p_token, p_sequence, ruling, null);
        raise exception using errcode = v_error.state, message = v_error.message, detail = v_error.detail,
            hint = v_error.hint;
    end if;
end
$$;

-- fence.check_guard_arguments(resource, token, sequence, digest) raises 22023 if an argument of fence.guard is invalid.
-- A token that is null is none of these: it is rejected as token_required.
create or replace function fence.check_guard_arguments(
    p_resource text, p_token bigint, p_sequence bigint, p_digest bytea) returns void
language plpgsql
as $$
declare
    v_problem text := case
        when p_resource is null then 'the resource is null'
        when not fence.is_name(p_resource)
            then format('the resource %s is not a name: 1 to 512 bytes in segments between slashes, '
                'none of them empty, . or ..', fence.quote_begin(p_resource))
        when p_token < 1 then format('the token is %s, it must be a positive integer', p_token)
        when p_token > 9007199254740991
            then format('the token is %s, it must be below 2^53, because JSON cannot hold greater integers exactly; '
                'subtract a constant from another service''s greater numbers', p_token)
        when p_sequence < 0 then format('the sequence is %s, it must not be negative', p_sequence)
        when octet_length(p_digest) > 64
            then format('the digest has %s bytes, it must have at most 64', octet_length(p_digest))
        when p_digest is not null and p_sequence is null then 'a digest needs a sequence'
    end;
begin
    if v_problem is not null then
        raise exception '%', v_problem using errcode = 'invalid_parameter_value';
    end if;
end
$$;

-- fence.no_policy_came() raises 40001 if there is a policy: it was set while a guard without policies waited.
create or replace function fence.no_policy_came() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from fence.policies) then
        raise exception 'a policy was set while the transaction waited' using errcode = 'serialization_failure';
    end if;
end
$$;

-- fence.bound_transaction(setting, most) bounds how long the transaction may keep what it has locked, because others wait
-- for that: PostgreSQL ends the session when the transaction is idle for longer (25P03), or from version 17 on lasts
-- longer from now (25P04). The bound is that of the setting, a time as PostgreSQL writes it; most if it is not set; none
-- if it is 0. Shorter ones that the session has stay. The end of the transaction, or a rollback to a savepoint before,
-- takes it back.
--
-- Called by functions of clients alone: transactions of gateways end at once. fence.guard does the same in place.
--
-- Raises 22007 if the setting is no time.
create or replace function fence.bound_transaction(p_setting text, p_most interval) returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
    v_most interval := coalesce(nullif(current_setting(p_setting, true), '')::interval, p_most);
begin
    if v_most > '0' and current_setting('idle_in_transaction_session_timeout')::interval not between '1 ms' and v_most then
        perform set_config('idle_in_transaction_session_timeout', extract(epoch from v_most * 1000)::bigint::text, true);
    end if;
    if v_most > '0' and current_setting('transaction_timeout', true) = '0' then
        perform set_config('transaction_timeout', extract(epoch from v_most * 1000)::bigint::text, true);
    end if;
end
$$;

-- fence.outcome(resource, token, sequence, lease_id) → the verdict of fence.try_guard, for a client that lost the answer to
-- the COMMIT of a transaction with this number. token_reused: it was committed; admitted: it was not. This is a question:
-- it admits nothing, keeps nothing locked, and is neither counted nor recorded as a rejection.
create or replace function fence.outcome(
    resource text, token bigint, sequence bigint, lease_id uuid default null,
    out verdict text, out reason text, out granted_token bigint, out last_token bigint, out last_sequence bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set enable_hashjoin = off
as $$
declare
    v_ruling fence.ruling := fence.guard_or('ask', resource, token, sequence, lease_id, null);
begin
    select v_ruling.verdict, v_ruling.reason, v_ruling.granted_token, v_ruling.last_token, v_ruling.last_sequence
    into verdict, reason, granted_token, last_token, last_sequence;
end
$$;
