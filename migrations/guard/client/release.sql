-- fence.release(lock, owner_id, lease_id, fencing_token) ends a lease and closes its fence. Sent twice, it succeeds
-- twice. It is part of the public interface: docs/sql/leases.md describes it, and its arguments and columns stay. → one row:
--
-- status  released  the lease has ended, once the transaction is committed; the next waiter is notified then
--         lost      the lease had ended otherwise; reason: broken, max_hold, superseded, mismatch or not_found, see
--                   fence.lease_status
--
-- Raises 22023 for a bad argument; 42501, see fence.check_use; 25000 and 25006, see fence.check_lease_call; 54000, see
-- fence.check_gates. The release is on disk before its commit is acknowledged (fence.commit_durably).
create or replace function fence.release(
    lock text, owner_id text, lease_id uuid, fencing_token bigint, out status text, out reason text)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.check_lease_ref(lock, owner_id, lease_id, fencing_token);
    perform fence.check_use(lock);
    perform fence.check_gates(lock);
    reason := (fence.release_lease(lock, owner_id, lease_id, fencing_token)).status;
    status := case reason when 'released' then 'released' else 'lost' end;
    reason := nullif(reason, 'released');
end
$$;
