-- renew: KEYS[1] is the key of a lock. ARGV: lease_id, owner_id, fencing_token, ttl_ms (0: the one it has).
-- → {'renewed', now_ms, ttl_ms, late_ms, value}: the lease now runs ttl_ms, which its hold_until may have made shorter;
-- late_ms is how much later the renewal came than a third of the TTL after the one before, negative if earlier.
-- {'gone'}: the key is free, or the lease's hold_until has come. {'other', value}: it has something else.
-- Errors: WRONGTYPE, OOM, READONLY.
--
-- Invariant (P6): a lease is renewed only by its lease_id, owner_id and fencing_token.
local value = redis.call('GET', KEYS[1])
if not value then
  return {'gone'}
end
local lease = lease_of(value)
if not lease or lease.lease_id ~= ARGV[1] or lease.owner_id ~= ARGV[2] or lease.fencing_token ~= tonumber(ARGV[3]) then
  return {'other', shown(value)}
end
local now, ttl, left = now_ms(), tonumber(ARGV[4]), redis.call('PTTL', KEYS[1])
local late = lease.ttl_ms - left - lease.ttl_ms / 3
if ttl == 0 then
  ttl = lease.ttl_ms
end
local changed = string.gsub(value, '"ttl_ms":%d+', string.format('"ttl_ms":%.0f', ttl), 1)
if lease.hold_until_ms then
  local hold = lease.hold_until_ms - now
  if hold <= 0 then
    return {'gone'}
  end
  if left >= hold then
    late = 0 -- its end was made earlier, so it does not show when the last renewal was
  end
  ttl = math.min(ttl, hold)
end
if changed == value then
  redis.call('PEXPIRE', KEYS[1], ttl) -- which a server that is full does, too
else
  redis.call('SET', KEYS[1], changed, 'PX', ttl)
end
return {'renewed', now, ttl, math.floor(late), changed}
