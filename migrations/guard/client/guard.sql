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
-- Raises the SQLSTATE of the rejection (fence.raise_rejection), 22023 for an invalid argument, and 40001 as
-- fence.guard_by_rule does, or if the first policy was set while this waited.
--
-- Leaves synchronous_commit as it is: data and fence are lost together or not at all.
create or replace function fence.guard(
    resource text, token bigint, sequence bigint default null, lease_id uuid default null, digest bytea default null)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_ruling fence.ruling;
begin
    if guard.lease_id is null and guard.digest is null then
        update fence.fences f
        set last_token = guard.token, last_sequence = coalesce(guard.sequence, 0), last_digest = null,
            admitted_in = pg_current_xact_id()
        where f.resource = guard.resource
            and fence.fast_path_admits(f, guard.token, guard.sequence)
            and not exists (select from fence.policies);
        if found then
            if exists (select from fence.policies) then
                raise exception 'a policy was set while the transaction waited' using errcode = 'serialization_failure';
            end if;
            return true;
        end if;
    end if;

    v_ruling := fence.guard_by_rule(guard.resource, guard.token, guard.sequence, guard.lease_id, guard.digest);
    if v_ruling.verdict not in ('admitted', 'replayed') then
        perform fence.raise_rejection(guard.resource, guard.token, guard.sequence, v_ruling, null);
    end if;
    return v_ruling.verdict = 'admitted';
end
$$;
