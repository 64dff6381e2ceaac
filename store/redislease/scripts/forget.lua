-- forget: KEYS[1] is the key of a lock, ARGV: the channel, the lock, the fencing_token of the lease that was broken (0:
-- there was none) → {'deleted'}: nothing is at the key any more, whoever had locked it; or {'newer'}: it has a lease that
-- was granted since. It is for an administrator's break, after the database has ended the lease. Errors: READONLY;
-- WRONGTYPE if something else than a lock is there.
--
-- Invariant: nothing is deleted but values of fencegate, and strings that expire, which may be locks of other programs.
local value, broken = redis.call('GET', KEYS[1]), tonumber(ARGV[3])
local lease = lease_of(value)
if lease and broken > 0 and (tonumber(lease.fencing_token) or 0) > broken then
  return {'newer'}
end
if value and not lease and redis.call('PTTL', KEYS[1]) < 0 then
  return redis.error_reply('WRONGTYPE the key has a string that never expires, which is no lock')
end
redis.call('DEL', KEYS[1])
publish(ARGV[1], ARGV[2])
return {'deleted'}
