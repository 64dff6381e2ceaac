-- fence.acquire(lock, owner_id, ttl_ms, mode, scope, request_id, metadata) tries to take a lock, without waiting. It is
-- part of the public interface: docs/sql/leases.md describes it, and its arguments and columns stay. → one row:
--
-- status  granted  lease_id, fencing_token, expires_at and hold_until are those of the caller's lease, once the
--                  transaction is committed
--         held     holder and expires_at are those of the lease in the way, of several the one that runs longest; both
--                  are null if the lock is free and waiters are ahead, and for a lease above that the role may not see.
--                  queue_length is the number of waiters; recommended_retry_ms is how long to wait before the next try
--         lost     the lease that this request_id was granted before has ended; reason: expired, released, broken or
--                  max_hold
--
-- Raises 22023 for a bad argument, also for a request_id that was used otherwise; LF003 if the policy says that another
-- lock service issues the tokens; LF005 if the policy says that leases are kept in Redis; LF002 from mint; LF007, see
-- fence.check_new_fence; 42501, see fence.check_use; 25000 and 25006, see fence.check_lease_call; 54000, see
-- fence.check_gates.
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
    perform fence.check_gates(lock, scope);
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
            'sql:' || session_user), 0, null);
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
