-- forget: KEYS[1] is the key of a lock, ARGV: the channel, the lock → {'deleted'}: nothing is at the key any more, whoever
-- had locked it. It is for an administrator's break, after the database has ended the lease. Errors: READONLY; WRONGTYPE
-- if something else than a lock is there.
--
-- Invariant: nothing is deleted but values of fencegate, and strings that expire, which may be locks of other programs.
local value = redis.call('GET', KEYS[1])
if value and not lease_of(value) and redis.call('PTTL', KEYS[1]) < 0 then
  return redis.error_reply('WRONGTYPE the key has a string that never expires, which is no lock')
end
redis.call('DEL', KEYS[1])
publish(ARGV[1], ARGV[2])
return {'deleted'}
