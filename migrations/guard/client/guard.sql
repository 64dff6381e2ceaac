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
-- The common case is one statement, the fast path (fence.fast_path_admits). To set search_path would cost a tenth of it,
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
    return fence.guard_or_raise(guard.resource, guard.token, guard.sequence, guard.lease_id, guard.digest);
end
$$;
