-- fence.acquire(lock, owner_id, ttl_ms, mode, scope, request_id, metadata) tries to take a lock, without waiting. It is
-- part of the public interface: docs/sql/leases.md describes it, and its arguments and columns stay. → one row:
--
-- status  granted  lease_id, fencing_token, expires_at and hold_until are those of the caller's lease, once the
--                  transaction is committed
--         held     holder and expires_at are those of the lease in the way, of several the one that runs longest; both
--                  are null if the lock is free and waiters are ahead, and for a lease above that the role may not see.
--                  queue_length is the number of waiters; recommended_retry_ms is how long to wait before the next try
--         lost     the lease that this request_id was granted before has ended; reason: expired, released or broken
--
-- Raises 22023 for a bad argument, also for a request_id that was used otherwise; LF003 if the policy says that another
-- lock service issues the tokens; LF005 if the policy says that leases are kept in Redis; LF002 from mint; LF007, see
-- fence.check_new_fence; 42501, see fence.check_use; 25000 and 25006, see fence.check_lease_call; 54000, see
-- fence.check_tree_locks.
--
-- A grant is on disk before its commit is acknowledged (fence.commit_durably). Otherwise the synchronous_commit of the
-- caller's transaction is left as it was.
create or replace function fence.acquire(
    lock text, owner_id text, ttl_ms integer default 30000, mode text default 'exclusive', scope text default 'node',
    request_id text default null, metadata json default null,
    out status text, out reason text, out lease_id uuid, out fencing_token bigint, out expires_at timestamptz,
    out hold_until timestamptz, out holder text, out queue_length bigint, out recommended_retry_ms bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
    v_synchronous_commit text := current_setting('synchronous_commit');
    v_answer             record;
begin
    perform fence.check_lease_call(lock, owner_id);
    perform fence.check_use(lock);
    perform fence.check_ttl(ttl_ms);
    perform fence.require(mode in ('exclusive', 'shared'),
        format('mode is %s, it must be exclusive or shared', coalesce(fence.quote_begin(mode), 'null')));
    perform fence.require(scope in ('node', 'subtree'),
        format('scope is %s, it must be node or subtree', coalesce(fence.quote_begin(scope), 'null')));
    perform fence.check_tree_locks(lock, scope);
    if request_id is not null then
        perform fence.check_text('request_id', request_id, 256);
    end if;
    if metadata is not null then
        perform fence.require(octet_length(metadata::text) <= 4096,
            format('metadata has %s bytes, the limit is 4096', octet_length(metadata::text)));
        perform fence.require(json_typeof(metadata) = 'object', 'metadata must be a JSON object');
        perform metadata::jsonb; -- raises 22P05 or 22P02 for an escape that no statement could read later
    end if;

    perform fence.check_provider(lock);
    v_answer := fence.acquire_lease(
        fence.lease_request(lock, owner_id, mode, scope, ttl_ms, null, request_id, metadata,
            'sql:' || session_user), 0, null, true);
    perform fence.check_outcome(v_answer.outcome);
    status := v_answer.outcome;
    expires_at := (v_answer.lease).expires_at;
    if status = 'granted' then
        lease_id := (v_answer.lease).lease_id;
        fencing_token := (v_answer.lease).fencing_token;
        hold_until := (v_answer.lease).hold_until;
        return;
    end if;

    perform set_config('synchronous_commit', v_synchronous_commit, true);
    if status = 'lost' then
        reason := (v_answer.lease).end_reason;
        expires_at := null;
        return;
    end if;
    if (v_answer.lease).lock <> lock and not fence.may_use((v_answer.lease).lock) then -- P15; as by HTTP
        expires_at := null;
        v_answer.lease := null;
        v_answer.left_ms := 1000;
    end if;
    holder := (v_answer.lease).owner_id;
    queue_length := v_answer.queue_length;
    -- A turn for the holder and each waiter, which ends with the lease or after a second. Up to a quarter more, so that
    -- clients do not all return at once. The gateway recommends the same.
    recommended_retry_ms := least(
        30000, (1 + least(queue_length, 600)) * least(greatest(coalesce(v_answer.left_ms, 0), 50), 1000));
    recommended_retry_ms := recommended_retry_ms + floor(random() * recommended_retry_ms / 4);
end
$$;

-- fence.renew(lock, owner_id, lease_id, fencing_token, ttl_ms) makes a live lease last ttl_ms from now (null: the TTL
-- that it has), but not longer than its policy allows. It is part of the public interface: docs/sql/leases.md describes
-- it, and its arguments and columns stay. → one row:
--
-- status  renewed  expires_at and hold_until are the lease's
--         lost     the caller no longer holds the lock; reason: expired, released, broken, superseded, mismatch
--                  or not_found, see fence.lease_status
--
-- Raises 22023 for a bad argument, also for a lease in a session; 42501, see fence.check_use; 25000 and 25006, see
-- fence.check_lease_call. It leaves synchronous_commit to the caller: a renewal that a crash loses makes the lease
-- shorter, never longer.
create or replace function fence.renew(
    lock text, owner_id text, lease_id uuid, fencing_token bigint, ttl_ms integer default null,
    out status text, out reason text, out expires_at timestamptz, out hold_until timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    v_answer record;
begin
    perform fence.check_lease_ref(lock, owner_id, lease_id, fencing_token);
    perform fence.check_use(lock);
    if ttl_ms is not null then
        perform fence.check_ttl(ttl_ms);
    end if;
    select * into v_answer
    from fence.renew_leases(array[lock], array[owner_id], array[lease_id], array[fencing_token], array[ttl_ms], true);
    perform fence.require(v_answer.status <> 'in_session', 'the lease lasts as long as its session: keep that alive');
    if v_answer.status <> 'live' then
        status := 'lost';
        reason := v_answer.status;
        return;
    end if;
    status := 'renewed';
    expires_at := (v_answer.lease).expires_at;
    hold_until := (v_answer.lease).hold_until;
end
$$;

-- fence.release(lock, owner_id, lease_id, fencing_token) ends a lease and closes its fence. Sent twice, it succeeds
-- twice. It is part of the public interface: docs/sql/leases.md describes it, and its arguments and columns stay. → one
-- row:
--
-- status  released  the lease has ended, once the transaction is committed; the next waiter is notified then
--         lost      the lease had ended otherwise; reason: broken, superseded, mismatch or not_found, see
--                   fence.lease_status
--
-- Raises 22023 for a bad argument; 42501, see fence.check_use; 25000 and 25006, see fence.check_lease_call; 54000, see
-- fence.check_tree_locks. The release is on disk before its commit is acknowledged (fence.commit_durably).
create or replace function fence.release(
    lock text, owner_id text, lease_id uuid, fencing_token bigint, out status text, out reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.check_lease_ref(lock, owner_id, lease_id, fencing_token);
    perform fence.check_use(lock);
    perform fence.check_tree_locks(lock);
    reason := (select r.status from fence.release_lease(lock, owner_id, lease_id, fencing_token, null, true) r);
    status := case reason when 'released' then 'released' else 'lost' end;
    reason := nullif(reason, 'released');
end
$$;

-- fence.check_lease_call(lock, owner_id) makes the checks that all lease functions of clients have in common, and
-- bounds how long the transaction may stay open (fence.bound_transaction). Raises 22023 for a bad argument, 25006 as
-- fence.check_writable does, and 25000 unless the transaction is READ COMMITTED: the functions lock first, and read in
-- later statements what was committed before the lock. With one snapshot for all statements, an acquire would overlook
-- a lease that was granted meanwhile on a name above or below (P1), and a release would not wake a new waiter.
create or replace function fence.check_lease_call(p_lock text, p_owner_id text) returns void
language plpgsql
as $$
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'leases need a transaction with the isolation level read committed, this one is %',
            current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state',
            hint = 'Call it in a transaction of its own, begun with: begin isolation level read committed.';
    end if;
    perform fence.require(fence.is_name(p_lock),
        format('lock is %s, which is not a name: 1 to 512 bytes in segments between slashes, '
            'none of them empty, . or ..', coalesce(fence.quote_begin(p_lock), 'null')));
    perform fence.check_text('owner_id', p_owner_id, 256);
    perform fence.check_writable();
    perform fence.bound_transaction('fencegate.lease_timeout', '5 s');
end
$$;

-- fence.check_lease_ref(lock, owner_id, lease_id, fencing_token) checks the form of what identifies a lease. Raises as
-- fence.check_lease_call.
create or replace function fence.check_lease_ref(
    p_lock text, p_owner_id text, p_lease_id uuid, p_fencing_token bigint) returns void
language plpgsql
as $$
begin
    perform fence.check_lease_call(p_lock, p_owner_id);
    perform fence.require(p_lease_id is not null, 'lease_id is null');
    perform fence.require(p_fencing_token between 1 and 9007199254740991,
        format('fencing_token is %L, it must be 1 to 2^53-1', p_fencing_token));
end
$$;

-- fence.check_outcome(outcome) raises 22023 for an outcome of fence.acquire_lease that is the caller's mistake.
create or replace function fence.check_outcome(p_outcome text) returns void
language plpgsql
as $$
begin
    perform fence.require(p_outcome <> 'owner_refused', format(
        'the policy demands an owner_id that is %1$s, or begins with %1$s/', 'sql:' || session_user));
    perform fence.require(p_outcome <> 'request_id_reused', 'request_id was used on this lock by another owner');
    perform fence.require(p_outcome <> 'request_id_changed',
        'request_id was used on this lock with another mode, scope, ttl_ms or metadata');
end
$$;

-- fence.check_provider(lock) raises LF005 if the policy says that leases on the lock are kept in Redis.
create or replace function fence.check_provider(p_lock text) returns void
language plpgsql
as $$
begin
    if exists (select from fence.policies)
        and exists (select from fence.policy_for(p_lock) p where p.leases <> 'postgres')
    then
        raise exception 'leases on % are kept in Redis: acquire through a gateway', p_lock using errcode = 'LF005';
    end if;
end
$$;

-- fence.check_writable() raises 25006 in a read-only transaction, as all are on a standby, and says what to do instead.
-- The statements that follow it would raise the same SQLSTATE without that.
create or replace function fence.check_writable() returns void
language plpgsql
as $$
begin
    if pg_is_in_recovery() then
        raise exception 'guards and leases change the fence, and this server is a standby'
            using errcode = 'read_only_sql_transaction', hint = 'Connect to the primary. Where a connection string names '
                'several hosts, target_session_attrs=read-write selects it.';
    elsif current_setting('transaction_read_only') = 'on' then
        raise exception 'guards and leases change the fence, and this transaction is read-only'
            using errcode = 'read_only_sql_transaction', hint = 'Begin it with: begin read write.';
    end if;
end
$$;

-- fence.check_tree_locks(lock, scope) raises 54000 if a request for the lock takes a tree lock (fence.take_tree_lock),
-- and this transaction has 64 others already. The lock table of a server with default settings holds some thousands, for
-- all databases.
create or replace function fence.check_tree_locks(p_lock text, p_scope text default 'node') returns void
language plpgsql
as $$
begin
    if (position('/' in p_lock) > 0 or p_scope = 'subtree')
        and cardinality(array_remove(fence.tree_locks_held(), fence.tree_of(p_lock))) >= 64
    then
        raise exception 'this transaction holds locks in 64 trees of names, the limit'
            using errcode = 'program_limit_exceeded',
            detail = 'Names with the same first segment are one tree.',
            hint = 'Use several transactions: commit after each lock, or after a few.';
    end if;
end
$$;
