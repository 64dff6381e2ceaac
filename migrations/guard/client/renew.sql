-- fence.renew(lock, owner_id, lease_id, fencing_token, ttl_ms) makes a live lease last ttl_ms from now (null: the TTL
-- that it has), but not longer than its policy allows. It is part of the public interface: docs/sql/leases.md describes it, and
-- its arguments and columns stay. → one row:
--
-- status  renewed  expires_at and hold_until are the lease's
--         lost     the caller no longer holds the lock; reason: expired, released, broken, max_hold, superseded,
--                  mismatch or not_found, see fence.lease_status
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
    v_answer := fence.renew_lease(lock, owner_id, lease_id, fencing_token, ttl_ms);
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
