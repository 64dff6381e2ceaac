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
    v_covering text[];
    v_locked   text[];
    v_ruling   fence.ruling;
begin
    perform fence.check_guard_arguments(p_resource, p_token, p_sequence, p_digest), fence.check_use(p_resource),
        fence.check_writable();
    perform fence.bound_transaction('fencegate.guard_timeout', '60 s');
    foreach v_wait in array array[false, true] loop
        select l.* into v_covering, v_locked
        from fence.lock_write_tokens(array[p_resource], array[p_token], v_wait) l;
        v_ruling := (fence.admit(array[p_resource], array[p_token], array[p_sequence], array[p_lease_id],
            array[v_digest], v_covering, v_locked, case when v_wait or p_resource = any (v_locked) then true end))[1];

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
            or v_ruling.verdict in ('token_required', 'token_unknown', 'token_stale', 'token_reused')
                and v_ruling.reason <> 'max_hold';
    end loop;

    if v_ruling.verdict = 'admitted' then
        update fence.fences f
        set last_token = p_token,
            last_sequence = fence.raised_sequence(f, p_token, v_sequence),
            last_digest = case when p_sequence is not null then v_digest end, admitted_in = pg_current_xact_id()
        where f.resource = p_resource;
    elsif v_snapshot and (v_ruling.verdict in ('lease_expired', 'lease_mismatch') or v_ruling.reason = 'max_hold') then
        perform from fence.leases l
        where l.lock = any (fence.ancestors(p_resource) || p_resource) and l.fencing_token = p_token for share;
    end if;
    return v_ruling;
end
$$;
