-- release: KEYS[1] is the key of a lock. ARGV: lease_id, owner_id, fencing_token (0: of a reservation), the channel, the
-- lock. → {'released'} if the key had the lease, or its reservation, and was deleted; otherwise {'gone'}. Errors: WRONGTYPE,
-- READONLY.
--
-- Only the end of a lease is published. If that of a reservation were, the waiters of two gateways whose reservations are
-- refused by the database would wake each other without a pause.
--
-- Invariant (P6): nothing is deleted but by its lease_id and owner_id, and a lease by its fencing_token, too.
local lease = lease_of(redis.call('GET', KEYS[1]))
if not lease or lease.lease_id ~= ARGV[1] or lease.owner_id ~= ARGV[2] then
  return {'gone'}
end
if lease.fencing_token and lease.fencing_token ~= tonumber(ARGV[3]) then
  return {'gone'}
end
redis.call('DEL', KEYS[1])
if lease.fencing_token then
  publish(ARGV[4], ARGV[5])
end
return {'released'}
