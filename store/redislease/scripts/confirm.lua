-- confirm: KEYS[1] is the key of a lock. ARGV: the value of the reservation, the value of the lease, its ttl_ms, its
-- fencing_token, the ms until it ends for good ('': never), the channel, the lock.
-- → {'confirmed', now_ms, ttl_ms} if the key still has the reservation. The lease begins now, and the value gets
-- hold_until_ms, by this server's clock. Otherwise {'lost'}. Errors: WRONGTYPE, OOM, READONLY.
--
-- Invariant: of two leases of a lock, that with the lower token does not stay. The grant of the higher one has shut it
-- out at the fence, so its key is deleted: its next renewal reports the loss.
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  local now, ttl, lease = now_ms(), tonumber(ARGV[3]), ARGV[2]
  if ARGV[5] ~= '' then
    ttl = math.min(ttl, tonumber(ARGV[5]))
    lease = string.format('%s,"hold_until_ms":%.0f}', string.sub(lease, 1, -2), now + tonumber(ARGV[5]))
  end
  redis.call('SET', KEYS[1], lease, 'PX', ttl)
  return {'confirmed', now, ttl}
end
local other = lease_of(value)
if other and other.fencing_token and other.fencing_token < tonumber(ARGV[4]) then
  redis.call('DEL', KEYS[1])
  publish(ARGV[6], ARGV[7])
end
return {'lost'}
